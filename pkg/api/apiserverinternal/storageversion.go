// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserverinternal declares StorageVersions, by which API servers publish the versions
// that they store objects in. As in Kubernetes, the group is off by default.
//
// Its functions are pure: they do no I/O, keep no state and read no clock.
package apiserverinternal

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
func Rows() []*resource.Row {
	return []*resource.Row{storageVersionRow()}
}

// storageVersionRow returns the row of the kind table for the resource storageversions.
func storageVersionRow() *resource.Row {
	parts := strategy.Parts[apiserverinternalv1alpha1.StorageVersion,
		apiserverinternalv1alpha1.StorageVersionSpec, apiserverinternalv1alpha1.StorageVersionStatus](
		func(o *apiserverinternalv1alpha1.StorageVersion) (*apiserverinternalv1alpha1.StorageVersionSpec,
			*apiserverinternalv1alpha1.StorageVersionStatus) {
			return &o.Spec, &o.Status
		})
	return resource.Of[apiserverinternalv1alpha1.StorageVersionList](
		resource.Kind[*apiserverinternalv1alpha1.StorageVersion]{
			Group: apiserverinternalv1alpha1.GroupName, Version: "v1alpha1", Resource: "storageversions", Kind: "StorageVersion",

			MetaOnUpdate:  resource.CheckNeither,
			PrepareCreate: parts.ClearStatus,
			PrepareUpdate: parts.KeepStatus,
			ResetFields:   []string{"status"},
			ValidateName:  validateName,
			Validate:      validateStorageVersion,

			Columns: []metav1.TableColumnDefinition{
				column.Name(),
				{Name: "CommonEncodingVersion", Type: "string",
					Description: apiserverinternalv1alpha1.StorageVersionStatus{}.SwaggerDoc()["commonEncodingVersion"]},
				{Name: "StorageVersions", Type: "string",
					Description: apiserverinternalv1alpha1.StorageVersionStatus{}.SwaggerDoc()["storageVersions"]},
				column.Age(),
			},
			Cells: cells,

			Subresources: []resource.Sub[*apiserverinternalv1alpha1.StorageVersion]{{
				Subresource:   strategy.View("status", "metadata", "spec").WithMetaChecks(resource.CheckNeither),
				PrepareUpdate: parts.KeepSpecAndMeta, ValidateUpdate: validateStatus,
			}},
		})
}

// shown is the maximum number of servers that a cell of the printed table lists.
const shown = 3

func cells(v *apiserverinternalv1alpha1.StorageVersion, env resource.CellEnv) []any {
	var servers []string
	for _, s := range v.Status.StorageVersions {
		servers = append(servers, fmt.Sprintf("%s=%s", s.APIServerID, s.EncodingVersion))
	}
	return []any{v.Name, column.Deref(v.Status.CommonEncodingVersion, column.Unset),
		column.FewOrUnset(servers, shown), env.Age(v.CreationTimestamp)}
}

// Common returns the version in which all servers store objects, or nil if the servers do not agree
// or if there are no servers.
func Common(servers []apiserverinternalv1alpha1.ServerStorageVersion) *string {
	if len(servers) == 0 {
		return nil
	}
	common := servers[0].EncodingVersion
	if slices.ContainsFunc(servers, func(s apiserverinternalv1alpha1.ServerStorageVersion) bool {
		return s.EncodingVersion != common
	}) {
		return nil
	}
	return &common
}

// Agree computes the common version and its condition in the status of v from the status's list of
// servers. Code that changes the list must call Agree afterwards.
func Agree(v *apiserverinternalv1alpha1.StorageVersion, now time.Time) {
	s := &v.Status
	was := s.CommonEncodingVersion
	s.CommonEncodingVersion = Common(s.StorageVersions)
	next := apiserverinternalv1alpha1.StorageVersionCondition{
		Type: apiserverinternalv1alpha1.AllEncodingVersionsEqual, Status: apiserverinternalv1alpha1.ConditionFalse,
		ObservedGeneration: v.Generation, LastTransitionTime: metav1.NewTime(now),
		Reason: "CommonEncodingVersionUnset", Message: "Common encoding version unset",
	}
	if s.CommonEncodingVersion != nil {
		next.Status, next.Reason, next.Message = apiserverinternalv1alpha1.ConditionTrue,
			"CommonEncodingVersionSet", "Common encoding version set"
	}
	at := slices.IndexFunc(s.Conditions, func(c apiserverinternalv1alpha1.StorageVersionCondition) bool {
		return c.Type == next.Type
	})
	if at < 0 {
		s.Conditions = append(s.Conditions, next)
		return
	}
	// A change from one common version to another also counts as a transition.
	moved := was != nil && s.CommonEncodingVersion != nil && *was != *s.CommonEncodingVersion
	if s.Conditions[at].Status == next.Status && !moved {
		next.LastTransitionTime = s.Conditions[at].LastTransitionTime
	}
	s.Conditions[at] = next
}

// validateName requires a name of the form GROUP.RESOURCE.
func validateName(name string, _ bool) []string {
	dot := strings.LastIndex(name, ".")
	if dot < 0 {
		return []string{"name must be in the form of <group>.<resource>"}
	}
	return append(prefixed("the group segment ", validation.IsDNS1123Subdomain(name[:dot])),
		prefixed("the resource segment ", validation.IsDNS1035Label(name[dot+1:]))...)
}

func validateStorageVersion(_ context.Context, v *apiserverinternalv1alpha1.StorageVersion) field.ErrorList {
	return checkStatus(&v.Status)
}

func validateStatus(_ context.Context, v, _ *apiserverinternalv1alpha1.StorageVersion) field.ErrorList {
	return checkStatus(&v.Status)
}

func checkStatus(s *apiserverinternalv1alpha1.StorageVersionStatus) field.ErrorList {
	var r report.Report
	path := field.NewPath("status")
	seen := sets.New[string]()
	for i := range s.StorageVersions {
		at, server := path.Child("storageVersions").Index(i), &s.StorageVersions[i]
		if seen.Has(server.APIServerID) {
			r.Duplicate(at.Child("apiServerID"), server.APIServerID)
		}
		seen.Insert(server.APIServerID)
		checkServer(&r, at, server)
	}
	checkCommon(&r, path.Child("commonEncodingVersion"), s)
	checkConditions(&r, path, s.Conditions)
	return r.Errors
}

func checkServer(r *report.Report, path *field.Path, s *apiserverinternalv1alpha1.ServerStorageVersion) {
	r.Each(path.Child("apiServerID"), s.APIServerID, apivalidation.NameIsDNSSubdomain(s.APIServerID, false))
	checkVersion(r, path.Child("encodingVersion"), s.EncodingVersion)
	decodable := path.Child("decodableVersions")
	for i, v := range s.DecodableVersions {
		checkVersion(r, decodable.Index(i), v)
	}
	if !slices.Contains(s.DecodableVersions, s.EncodingVersion) {
		r.Invalid(decodable, s.DecodableVersions, "decodableVersions must include encodingVersion "+s.EncodingVersion)
	}
	for i, v := range s.ServedVersions {
		at := path.Child("servedVersions").Index(i)
		checkVersion(r, at, v)
		if !slices.Contains(s.DecodableVersions, v) {
			r.Invalid(at, v, fmt.Sprintf(
				"individual served version : %s must be included in decodableVersions : %s", v, s.DecodableVersions))
		}
	}
}

// checkVersion requires a value of the form GROUP/VERSION or VERSION. It reports all faults of the
// value in one error.
func checkVersion(r *report.Report, path *field.Path, apiVersion string) {
	const form = "a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start " +
		"with an alphabetic character, and end with an alphanumeric character"
	var reasons []string
	group, version, found := strings.Cut(apiVersion, "/")
	switch {
	case strings.Contains(version, "/"):
		r.Invalid(path, apiVersion, "an apiVersion is "+
			validation.RegexError(form, "[a-z]([-a-z0-9]*[a-z0-9])?", "my-name", "abc-123")+
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

func checkCommon(r *report.Report, path *field.Path, s *apiserverinternalv1alpha1.StorageVersionStatus) {
	is, said := Common(s.StorageVersions), s.CommonEncodingVersion
	switch {
	case is == nil && said != nil:
		r.Invalid(path, *said, "should be nil if servers do not agree on the same encoding version, or if "+
			"there is no server reporting the supported versions yet")
	case is != nil && said == nil:
		r.Invalid(path, said, "the common encoding version is "+*is)
	case is != nil && *is != *said:
		r.Invalid(path, *said, "the actual common encoding version is "+*is)
	}
}

func checkConditions(r *report.Report, path *field.Path,
	conditions []apiserverinternalv1alpha1.StorageVersionCondition) {
	seen := map[apiserverinternalv1alpha1.StorageVersionConditionType]int{}
	for i, c := range conditions {
		at := path.Index(i) // as in Kubernetes, the path lacks "conditions"
		if first, twice := seen[c.Type]; twice {
			r.Invalid(at.Child("type"), string(c.Type),
				fmt.Sprintf("the type of the condition is not unique, it also appears in conditions[%d]", first))
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
