// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
)

// TestStoredQuotaAmounts checks a quota with a stored amount that would now be rejected. The quota
// and its status can be updated while they keep the amount. Another amount of this kind is rejected
// (kubernetes/kubernetes#142190).
func TestStoredQuotaAmounts(t *testing.T) {
	pods := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourcePods: quantity.MustParse(amount)}
	}
	quota := func(hard, statusHard, used string) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{
			Spec:   corev1.ResourceQuotaSpec{Hard: pods(hard)},
			Status: corev1.ResourceQuotaStatus{Hard: pods(statusHard), Used: pods(used)},
		}
	}
	const half, other = "18446744073709551616m", "18446744073709551617m"
	old := quota(half, "1", half)
	if errs := validateResourceQuota(t.Context(), quota(half, "1", "1")); len(errs) != 1 {
		t.Errorf("created: %v, want one error", errs)
	}
	if errs := validateResourceQuotaUpdate(t.Context(), quota(half, "1", "1"), old); len(errs) > 0 {
		t.Errorf("updated: %v", errs)
	}
	if errs := validateResourceQuotaUpdate(t.Context(), quota(other, "1", "1"), old); len(errs) != 1 {
		t.Errorf("updated to another amount: %v, want one error", errs)
	}
	if errs := validateResourceQuotaStatus(t.Context(), quota("1", half, half), old); len(errs) > 0 {
		t.Errorf("status of the stored spec: %v", errs)
	}
	if errs := validateResourceQuotaStatus(t.Context(), quota("1", other, other), old); len(errs) != 2 {
		t.Errorf("status of other amounts: %v, want two errors", errs)
	}
}
