// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
)

// TestMarkUnknown checks that a node whose Lease was renewed, although the controller has not yet
// seen this, is not marked as unknown.
func TestMarkUnknown(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	seen := metav1.NewMicroTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	leases := s.Client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	for name, tc := range map[string]struct {
		renewed *metav1.MicroTime // nil if the node has no Lease
		want    v1.ConditionStatus
	}{
		"none":    {nil, v1.ConditionUnknown},
		"seen":    {&seen, v1.ConditionUnknown},
		"renewed": {new(metav1.NewMicroTime(seen.Add(time.Second))), ""},
	} {
		t.Run(name, func(t *testing.T) {
			node, err := s.Client.CoreV1().Nodes().Create(t.Context(),
				&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if tc.renewed != nil {
				if _, err := leases.Create(t.Context(), &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Name: name},
					Spec:       coordinationv1.LeaseSpec{RenewTime: tc.renewed},
				}, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			c := &Controller{Deps: controller.Deps{Client: s.Client, Clock: clock.Real()},
				heartbeats: map[string]heartbeat{name: {lease: seen}}}
			if err := c.markUnknown(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			if node, err = s.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := controller.NodeReady(node).Status; got != tc.want {
				t.Errorf("status of Ready: %q, want %q", got, tc.want)
			}
		})
	}
}
