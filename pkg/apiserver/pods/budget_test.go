// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRefusedEvictions checks the code and the cause of evictions that a budget does not allow.
func TestRefusedEvictions(t *testing.T) {
	many := map[string]metav1.Time{}
	for i := range maxDisrupted + 1 {
		many[fmt.Sprint(i)] = metav1.Time{}
	}
	for name, tc := range map[string]struct {
		status policyv1.PodDisruptionBudgetStatus
		code   int32
		want   string
	}{
		"negative": {policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: -1}, 403,
			"The disruption budget b does not allow evicting pods currently: pdb disruptions allowed is negative"},
		"too many": {policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, DisruptedPods: many}, 403,
			"The disruption budget b does not allow evicting pods currently: too many pending evictions not " +
				"confirmed by PDB controller"},
		"none left": {policyv1.PodDisruptionBudgetStatus{DesiredHealthy: 2, CurrentHealthy: 1}, 429,
			"The disruption budget b needs 2 healthy pods and has 1 currently"},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&eviction{}).spend(t.Context(), &corev1.Pod{},
				&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Status: tc.status})
			status := apierrors.APIStatus(nil)
			if !errors.As(err, &status) {
				t.Fatal(err)
			}
			got := status.Status()
			if got.Code != tc.code || len(got.Details.Causes) != 1 ||
				got.Details.Causes[0].Type != policyv1.DisruptionBudgetCause || got.Details.Causes[0].Message != tc.want {
				t.Errorf("%d: %v", got.Code, got.Details)
			}
		})
	}
}
