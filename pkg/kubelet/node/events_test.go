// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/kubelet/node"
)

// TestEvents checks the events of a node from its registration until its control plane has declared it silent,
// and that a status that has not changed has none.
func TestEvents(t *testing.T) {
	client := testserver.Start(t, testserver.Options{}).Client
	events := make(chan string, 10)
	m := &machine{bootID: "first", event: func(eventType, reason, message string) {
		events <- eventType + " " + reason + " " + message
	}}
	n := start(t, client, m)
	nodes := client.CoreV1().Nodes()
	is := func(c v1.NodeConditionType, status v1.ConditionStatus) func(*v1.Node) bool {
		return func(n *v1.Node) bool { return condition(n, c).Status == status }
	}
	for _, step := range []struct {
		name string
		do   func(*v1.Node)
		done func(*v1.Node) bool
		want []string
	}{
		{"registered", func(*v1.Node) {}, is(v1.NodeReady, v1.ConditionTrue), []string{
			"Normal NodeHasSufficientMemory Node n1 status is now: NodeHasSufficientMemory",
			"Normal NodeHasNoDiskPressure Node n1 status is now: NodeHasNoDiskPressure",
			"Normal NodeHasSufficientPID Node n1 status is now: NodeHasSufficientPID",
		}},
		{"not ready", func(*v1.Node) { m.set(errors.New("no runtime"), nil) }, is(v1.NodeReady, v1.ConditionFalse),
			[]string{"Normal NodeNotReady Node n1 status is now: NodeNotReady"}},
		{"disk pressure", func(*v1.Node) {
			m.set(nil, map[v1.NodeConditionType]string{v1.NodeDiskPressure: "full"})
		}, is(v1.NodeDiskPressure, v1.ConditionTrue), []string{
			"Normal NodeHasDiskPressure Node n1 status is now: NodeHasDiskPressure",
			"Normal NodeReady Node n1 status is now: NodeReady",
		}},
		{"cut off and back", func(n *v1.Node) {
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].Status = v1.ConditionUnknown
			}
			if _, err := nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, is(v1.NodeReady, v1.ConditionTrue), []string{
			"Normal NodeHasSufficientMemory Node n1 status is now: NodeHasSufficientMemory",
			"Normal NodeHasDiskPressure Node n1 status is now: NodeHasDiskPressure",
			"Normal NodeHasSufficientPID Node n1 status is now: NodeHasSufficientPID",
			"Normal NodeReady Node n1 status is now: NodeReady",
		}},
		{"cordoned and rebooted", func(n *v1.Node) {
			n.Spec.Unschedulable = true
			n, err := nodes.Update(t.Context(), n, metav1.UpdateOptions{})
			if err == nil {
				n.Status.NodeInfo.BootID = "before"
				_, err = nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}, func(n *v1.Node) bool { return n.Status.NodeInfo.BootID == "first" && n.Spec.Unschedulable }, []string{
			"Normal NodeNotSchedulable Node n1 status is now: NodeNotSchedulable",
			"Warning Rebooted Node n1 has been rebooted, boot id: first",
		}},
	} {
		await(t, client, "the node", func(n *v1.Node) bool { step.do(n); return true })
		for _, want := range step.want {
			if got := next(t, n, events); got != want {
				t.Errorf("%s: event %q, want %q", step.name, got, want)
			}
		}
		await(t, client, step.name, step.done)
	}
}

// next returns the next event. It lets the node compute its status again and again, because the node reads its
// object from the server's cache, which may not have the last change yet.
func next(t *testing.T, n *node.Node, events <-chan string) string {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); n.Poke() {
		select {
		case e := <-events:
			return e
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatal("no event")
	return ""
}
