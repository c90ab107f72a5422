// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestNodeEvents checks the events of a node: that the controller knows it, that it has become silent, and that it
// was deleted.
func TestNodeEvents(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1.NodeStatus{
		Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}}
	created, err := s.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.Status = node.Status
	if created, err = s.Client.CoreV1().Nodes().UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c, _ := controllertest.RunUnwatched[*Controller](t, s, clock.Real(), New)
	events := record.NewFakeRecorder(10)
	c.Events = events
	for _, step := range []struct {
		name string
		do   func() error
		want string
	}{
		{"new", func() error { c.nodeChanged(nil, created); return nil },
			"Normal RegisteredNode Node n event: Registered Node n in Controller"},
		{"silent", func() error { return c.markUnknown(t.Context(), created) },
			"Normal NodeNotReady Node n status is now: NodeNotReady"},
		{"deleted", func() error { c.nodeChanged(created, nil); return nil },
			"Normal RemovingNode Node n event: Removing Node n from Controller"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(step.name, err)
		}
		if len(events.Events) != 1 {
			t.Fatalf("%s: %d events, want one", step.name, len(events.Events))
		}
		if got := <-events.Events; got != step.want {
			t.Errorf("%s: event %q, want %q", step.name, got, step.want)
		}
	}
}

// TestUnreadyBefore checks that a node whose kubelet has reported that it is not ready gets no event when it
// becomes silent.
func TestUnreadyBefore(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	node, err := s.Client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events := record.NewFakeRecorder(10)
	c := &Controller{Deps: controller.Deps{Client: s.Client, Clock: clock.Real(), Events: events},
		heartbeats: map[string]heartbeat{"n": {at: time.Now()}}}
	if err := c.markUnknown(t.Context(), node); err != nil || len(events.Events) != 0 {
		t.Errorf("%d events, %v", len(events.Events), err)
	}
}
