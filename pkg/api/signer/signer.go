// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signer validates the names of certificate signers, the names of ClusterTrustBundles, which
// depend on them, and other properties that pods and PodCertificateRequests share. It is pure.
package signer

import (
	"fmt"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

// CheckName requires a domain and a path with exactly one slash between them.
func CheckName(r *report.Report, path *field.Path, name string) {
	if name == "" {
		r.Required(path, "")
		return
	}
	domain, rest, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(rest, "/") {
		r.Invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
		return
	}
	if len(domain) > validation.DNS1123SubdomainMaxLength {
		r.TooLong(path, validation.DNS1123SubdomainMaxLength)
	}
	checkParts(r, path, domain, validation.IsDNS1123Label)
	if !strings.Contains(domain, ".") {
		r.Invalid(path, domain, "should be a domain with at least two segments separated by dots")
	}
	checkParts(r, path, rest, validation.IsDNS1123Subdomain)
}

// checkParts reports the first invalid part only, because all parts give the same message.
func checkParts(r *report.Report, path *field.Path, name string, check func(string) []string) {
	for _, part := range strings.Split(name, ".") {
		reasons := check(part)
		for _, reason := range reasons {
			r.Invalid(path, name, fmt.Sprintf("validating label %q: %s", part, reason))
		}
		if len(reasons) > 0 {
			return
		}
	}
}

// BundleName returns the reasons why name is not a valid name, or prefix of names, of a bundle of
// the signer. Bundles without a signer have an empty signer.
func BundleName(signer, name string, prefix bool) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
		}
		return naming.NameIsDNSSubdomain(name, prefix)
	}
	start := strings.ReplaceAll(signer, "/", ":") + ":"
	rest, ok := strings.CutPrefix(name, start)
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, start)}
	}
	return naming.NameIsDNSSubdomain(rest, prefix)
}

// OfBundle returns the signer that a bundle's name contains, or an empty string.
func OfBundle(name string) string {
	end := strings.LastIndex(name, ":")
	if end < 0 {
		return ""
	}
	return strings.ReplaceAll(name[:end], ":", "/")
}

// MinSeconds is the minimum of maxExpirationSeconds of a pod's certificate, and DefaultSeconds its
// default in a PodCertificateRequest.
const (
	MinSeconds     int32 = 60 * 60
	DefaultSeconds int32 = 24 * 60 * 60
)

// MaxSeconds returns the maximum of maxExpirationSeconds of a pod's certificate: a day for the
// signers of Kubernetes, which are in the domain kubernetes.io, and 91 days for all others.
func MaxSeconds(signer string) int32 {
	const day = 24 * 60 * 60
	if domain, _, _ := strings.Cut(signer, "/"); domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		return day
	}
	return 91 * day
}

// CheckAnnotations validates annotations that the author of a pod passes to the signer of its
// certificate. Their keys must have a domain.
func CheckAnnotations(r *report.Report, path *field.Path, annotations map[string]string) {
	for _, key := range report.Keys(annotations) {
		r.Add(validation.IsDomainPrefixedKey(path, strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(annotations) != nil {
		r.TooLong(path, apivalidation.TotalAnnotationSizeLimitB)
	}
}
