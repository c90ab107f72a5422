// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/machines/v1alpha1"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/machine/machinestest"
)

// TestClient checks that a node's client creates the Machine, that an administrator's client changes
// its specification, and that neither writes if nothing changes.
func TestClient(t *testing.T) {
	s := machinestest.Start(t)
	admin, err := NewClient(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	node, err := NewClient(s.UserConfig(t, "system:node:m1", "system:nodes"))
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.NewTime(time.Unix(1800000000, 0))
	report := func(m *v1alpha1.Machine) {
		m.Status.ObservedGeneration, m.Status.Heartbeat, m.Status.ControlPlane = m.Generation, &now, true
		m.Status.Releases = []v1alpha1.Release{{Name: "1", Kubernetes: "v1.37.2"}}
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1alpha1.Upgraded,
			Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCurrent, LastTransitionTime: now})
	}
	// The server follows policies and rights by watches.
	controllertest.Eventually(t, "the Machine", func(ctx context.Context) (any, bool) {
		err := node.SetStatus(ctx, "m1", report)
		return err, err == nil
	})
	first, err := node.Get(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	if st := first.Status; st.ObservedGeneration != 1 || !st.Heartbeat.Equal(&now) || !st.ControlPlane ||
		!slices.Equal(st.Releases, []v1alpha1.Release{{Name: "1", Kubernetes: "v1.37.2"}}) ||
		!meta.IsStatusConditionTrue(st.Conditions, v1alpha1.Upgraded) {
		t.Errorf("status %+v", st)
	}
	if err := node.SetStatus(t.Context(), "m1", report); err != nil {
		t.Error(err)
	}
	choose := func(spec *v1alpha1.MachineSpec) { spec.Release = "2" }
	version := first.ResourceVersion
	for range 2 {
		if err := admin.SetSpec(t.Context(), "m1", choose); err != nil {
			t.Error(err)
		}
		list, err := admin.List(t.Context())
		if err != nil || len(list) != 1 || list[0].Spec.Release != "2" || list[0].Status.Heartbeat == nil {
			t.Fatalf("%+v, %v", list, err)
		}
		if version != first.ResourceVersion && list[0].ResourceVersion != version {
			t.Error("a change that changes nothing was written")
		}
		version = list[0].ResourceVersion
	}
}
