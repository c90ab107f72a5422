// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import "k8s.io/apimachinery/pkg/util/validation"

// nameIPAddress wants an address in its canonical form.
func nameIPAddress(name string, _ bool) []string {
	var reasons []string
	for _, err := range validation.IsValidIP(nil, name) {
		reasons = append(reasons, err.Detail)
	}
	return reasons
}
