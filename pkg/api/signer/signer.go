// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signer validates the names of certificate signers, and the names of ClusterTrustBundles,
// which depend on them. It is pure.
package signer

import (
	"fmt"
	"strings"

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
