// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
)

// TestWholeQuantities checks that whole quantities are accepted even if their thousandths, or the
// quantities themselves, do not fit into 64 bits (kubernetes/kubernetes#141349).
func TestWholeQuantities(t *testing.T) {
	for text, valid := range map[string]bool{
		"1": true, "1500m": false, "2000m": true, "1m": false, "0": true,
		"9223372036854775": true, "9223372036854776": true, "9223372036854775807": true,
		"9223372036854775807001m": false, "18446744073709551616m": false, "18446744073709551616": true, "1e30": true,
	} {
		for _, name := range []corev1.ResourceName{corev1.ResourcePods, "example.com/device"} {
			errs := podspec.ValidateQuantity(name, resource.MustParse(text), field.NewPath("q"))
			if (len(errs) == 0) != valid {
				t.Errorf("%s of %s: %v, want valid %v", text, name, errs, valid)
			}
		}
	}
}
