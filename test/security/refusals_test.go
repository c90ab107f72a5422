// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSystemPriorityClasses: without the two classes of the system no pod that a
// cluster cannot do without is created any more, until a server starts anew.
func TestSystemPriorityClasses(t *testing.T) {
	lab := newLab(t, nil)
	api := lab.Client.SchedulingV1().PriorityClasses()
	for _, name := range []string{"system-cluster-critical", "system-node-critical"} {
		selector := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
		want := `priorityclasses.scheduling.k8s.io "` + name + `" is forbidden: this is a system priority class and cannot be deleted`
		for way, remove := range map[string]func() error{
			"delete":     func() error { return api.Delete(t.Context(), name, metav1.DeleteOptions{}) },
			"dry run":    func() error { return api.Delete(t.Context(), name, metav1.DeleteOptions{DryRun: []string{"All"}}) },
			"collection": func() error { return api.DeleteCollection(t.Context(), metav1.DeleteOptions{}, selector) },
		} {
			if err := remove(); !apierrors.IsForbidden(err) || err.Error() != want {
				t.Errorf("%s of %s: %v, want %s", way, name, err, want)
			}
		}
		if _, err := api.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
}
