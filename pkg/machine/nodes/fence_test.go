// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/restorehold"
)

func (c *cell) node() *v1.Node {
	c.Helper()
	n, err := c.Client.CoreV1().Nodes().Get(c.Context(), "m2", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return n
}

// TestFence checks that a fence marks the node and promises by Kubernetes' taint that its machine is off,
// and that the end of the fence leaves an unreported node with all other taints.
func TestFence(t *testing.T) {
	c := newCell(t, v1.ConditionUnknown, serverAddress)
	ctx := t.Context()
	n := c.node()
	own := v1.Taint{Key: v1.TaintNodeOutOfService, Value: "mine", Effect: v1.TaintEffectNoSchedule}
	n.Spec.Taints = append(n.Spec.Taints, own)
	if _, err := c.Client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	o := Options{Client: c.Client, Clock: c.clock, Out: &c.out}
	fenced := func() (out bool) {
		for _, taint := range c.node().Spec.Taints {
			out = out || taint.Key == v1.TaintNodeOutOfService && taint.Effect == v1.TaintEffectNoExecute
		}
		if out != restorehold.IsFenced(c.node()) {
			t.Errorf("taint %v, labels %v", out, c.node().Labels)
		}
		return out
	}
	var marks []string
	for range 2 {
		for range 2 { // the second time is without effect
			if err := Fence(ctx, "m2", o); err != nil || !fenced() || restorehold.Waiting(c.node()) {
				t.Fatalf("fence: %v, %v", err, c.node().Labels)
			}
		}
		for range 2 {
			if err := Unfence(ctx, "m2", o); err != nil || fenced() || !restorehold.Waiting(c.node()) {
				t.Fatalf("end: %v, %v", err, c.node().Labels)
			}
		}
		marks = append(marks, c.node().Labels[restorehold.Unreported])
	}
	if marks[0] >= marks[1] {
		t.Errorf("the second mark is not higher: %v", marks)
	}
	found := false
	for _, taint := range c.node().Spec.Taints {
		found = found || taint == own
	}
	if !found {
		t.Errorf("the taint of another client is lost: %v", c.node().Spec.Taints)
	}
	const want = "node/m2 fenced\nnode/m2 is fenced already\nnode/m2 is not fenced any more\nnode/m2 is not fenced\n"
	if got := c.out.String(); got != want+want {
		t.Errorf("output: %s", got)
	}
}

// TestFenceOfReadyNode checks that a node that is ready is fenced only by force.
func TestFenceOfReadyNode(t *testing.T) {
	c := newCell(t, v1.ConditionTrue, serverAddress)
	o := Options{Client: c.Client, Clock: c.clock, Out: &c.out}
	if err := Fence(t.Context(), "m2", o); !errors.Is(err, errReady) || restorehold.IsFenced(c.node()) {
		t.Errorf("fence: %v, %v", err, c.node().Labels)
	}
	if err := Fence(t.Context(), "m3", o); !apierrors.IsNotFound(err) {
		t.Errorf("fence of an unknown node: %v", err)
	}
	o.Force = true
	if err := Fence(t.Context(), "m2", o); err != nil || !restorehold.IsFenced(c.node()) {
		t.Errorf("forced: %v, %v", err, c.node().Labels)
	}
	if !strings.Contains(c.out.String(), "about a minute") {
		t.Errorf("output: %s", c.out.String())
	}
}
