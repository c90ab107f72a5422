// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserverinternal

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
)

// validateName: a name is GROUP.RESOURCE.
func validateName(name string, _ bool) []string {
	dot := strings.LastIndex(name, ".")
	if dot < 0 {
		return []string{"name must be in the form of <group>.<resource>"}
	}
	return append(prefixed("the group segment ", validation.IsDNS1123Subdomain(name[:dot])),
		prefixed("the resource segment ", validation.IsDNS1035Label(name[dot+1:]))...)
}

func validateStorageVersion(_ context.Context, v *apiserverinternalv1alpha1.StorageVersion) field.ErrorList {
	return judge(&v.Status)
}

func validateStatus(_ context.Context, v, _ *apiserverinternalv1alpha1.StorageVersion) field.ErrorList {
	return judge(&v.Status)
}

func judge(s *apiserverinternalv1alpha1.StorageVersionStatus) field.ErrorList {
	var r report.Report
	path := field.NewPath("status")
	seen := sets.New[string]()
	for i := range s.StorageVersions {
		at, server := path.Child("storageVersions").Index(i), &s.StorageVersions[i]
		if seen.Has(server.APIServerID) {
			r.Duplicate(at.Child("apiServerID"), server.APIServerID)
		}
		seen.Insert(server.APIServerID)
		judgeServer(&r, at, server)
	}
	judgeCommon(&r, path.Child("commonEncodingVersion"), s)
	judgeConditions(&r, path, s.Conditions)
	return r.Errors
}

func judgeServer(r *report.Report, path *field.Path, s *apiserverinternalv1alpha1.ServerStorageVersion) {
	r.Each(path.Child("apiServerID"), s.APIServerID, apivalidation.NameIsDNSSubdomain(s.APIServerID, false))
	judgeVersion(r, path.Child("encodingVersion"), s.EncodingVersion)
	decodable := path.Child("decodableVersions")
	for i, v := range s.DecodableVersions {
		judgeVersion(r, decodable.Index(i), v)
	}
	if !slices.Contains(s.DecodableVersions, s.EncodingVersion) {
		r.Invalid(decodable, s.DecodableVersions, "decodableVersions must include encodingVersion "+s.EncodingVersion)
	}
	for i, v := range s.ServedVersions {
		at := path.Child("servedVersions").Index(i)
		judgeVersion(r, at, v)
		if !slices.Contains(s.DecodableVersions, v) {
			r.Invalid(at, v, fmt.Sprintf("individual served version : %s must be included in decodableVersions : %s", v, s.DecodableVersions))
		}
	}
}

// judgeVersion reports what is not GROUP/VERSION or VERSION, all that is wrong in one.
func judgeVersion(r *report.Report, path *field.Path, apiVersion string) {
	const form = "a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character"
	var reasons []string
	group, version, found := strings.Cut(apiVersion, "/")
	switch {
	case strings.Contains(version, "/"):
		r.Invalid(path, apiVersion, "an apiVersion is "+validation.RegexError(form, "[a-z]([-a-z0-9]*[a-z0-9])?", "my-name", "abc-123")+
			" with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')")
		return
	case !found:
		version = group
	case group == "":
		reasons = append(reasons, "group part: "+validation.EmptyError())
	default:
		reasons = append(reasons, prefixed("group part: ", validation.IsDNS1123Subdomain(group))...)
	}
	if version == "" {
		reasons = append(reasons, "version part: "+validation.EmptyError())
	} else {
		reasons = append(reasons, prefixed("version part: ", validation.IsDNS1035Label(version))...)
	}
	if len(reasons) > 0 {
		r.Invalid(path, apiVersion, strings.Join(reasons, ","))
	}
}

func judgeCommon(r *report.Report, path *field.Path, s *apiserverinternalv1alpha1.StorageVersionStatus) {
	is, said := Common(s.StorageVersions), s.CommonEncodingVersion
	switch {
	case is == nil && said != nil:
		r.Invalid(path, *said, "should be nil if servers do not agree on the same encoding version, or if there is no server reporting the supported versions yet")
	case is != nil && said == nil:
		r.Invalid(path, said, "the common encoding version is "+*is)
	case is != nil && *is != *said:
		r.Invalid(path, *said, "the actual common encoding version is "+*is)
	}
}

func judgeConditions(r *report.Report, path *field.Path, conditions []apiserverinternalv1alpha1.StorageVersionCondition) {
	seen := map[apiserverinternalv1alpha1.StorageVersionConditionType]int{}
	for i, c := range conditions {
		at := path.Index(i) // Kubernetes leaves the list's name out
		if first, twice := seen[c.Type]; twice {
			r.Invalid(at.Child("type"), string(c.Type), fmt.Sprintf("the type of the condition is not unique, it also appears in conditions[%d]", first))
		}
		seen[c.Type] = i
		r.QualifiedName(at.Child("type"), string(c.Type))
		r.QualifiedName(at.Child("status"), string(c.Status))
		if c.Reason == "" {
			r.Required(at.Child("reason"), "")
		}
		if c.Message == "" {
			r.Required(at.Child("message"), "")
		}
	}
}

func prefixed(prefix string, reasons []string) []string {
	for i := range reasons {
		reasons[i] = prefix + reasons[i]
	}
	return reasons
}
