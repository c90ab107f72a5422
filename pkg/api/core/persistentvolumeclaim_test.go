// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
)

// TestSizesOfStatus checks that negative sizes in the status are rejected, and that all other sizes
// are accepted, even those that do not fit into 64 bits (kubernetes/kubernetes#141169).
func TestSizesOfStatus(t *testing.T) {
	for text, want := range map[string]string{
		"1Gi": "", "0": "", "9223372036854775808": "", "16E": "", "1e30": "",
		"-1":     "Invalid value: -1: must be a valid resource quantity",
		"-9.5Gi": `Invalid value: "-9728Mi": must be a valid resource quantity`,
		"-500m":  `Invalid value: "-500m": must be a valid resource quantity`,
		"-1e30":  `Invalid value: "-1e30": must be a valid resource quantity`,
	} {
		size := corev1.ResourceList{corev1.ResourceStorage: quantity.MustParse(text)}
		claim := &corev1.PersistentVolumeClaim{
			Spec:   corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
			Status: corev1.PersistentVolumeClaimStatus{Capacity: size, AllocatedResources: size},
		}
		errs := validatePersistentVolumeClaimStatus(t.Context(), claim, claim)
		if want == "" {
			if len(errs) > 0 {
				t.Errorf("%s: %v", text, errs)
			}
			continue
		}
		if len(errs) != 2 {
			t.Errorf("%s: %v, want an error for each field", text, errs)
			continue
		}
		for i, field := range []string{"status.capacity[storage]: ", "status.allocatedResources[storage]: "} {
			if got := errs[i].Error(); got != field+want {
				t.Errorf("%s: %s, want %s", text, got, field+want)
			}
		}
	}
}
