// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validation/path"

	"keelson.dev/apiserver/naming"
)

// SegmentName judges the names of kinds that take any: what fits into a path.
func SegmentName(name string, prefix bool) []string {
	return path.ValidatePathSegmentName(name, prefix)
}

// LongName judges names that are DNS subdomains, for kinds whose prefixes of
// names have but to fit into a path and whose names' length is counted in bytes.
func LongName(name string, prefix bool) []string {
	if prefix {
		return SegmentName(name, prefix)
	}
	reasons := naming.NameIsDNSSubdomain(name, false)
	for i, reason := range reasons {
		reasons[i] = strings.Replace(reason, "no more than 253 characters", "no more than 253 bytes", 1)
	}
	return reasons
}
