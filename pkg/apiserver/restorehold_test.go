// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/restorehold"
)

// setOf returns a pod that a StatefulSet controls.
func setOf(name string) *corev1.Pod {
	p := pod(name, "")
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "1",
		Controller: &yes}}
	return p
}

func createNode(t *testing.T, client kubernetes.Interface, name string, labels map[string]string) {
	t.Helper()
	_, err := client.CoreV1().Nodes().Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// labelPatch returns a merge patch that sets a label, or removes it if value is empty.
func labelPatch(label, value string) []byte {
	text := "null"
	if value != "" {
		text = fmt.Sprintf("%q", value)
	}
	return fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, label, text)
}

func labelNode(ctx context.Context, client kubernetes.Interface, name, label, value string) error {
	_, err := client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, labelPatch(label, value),
		metav1.PatchOptions{})
	return err
}

func labelPod(ctx context.Context, client kubernetes.Interface, name, label, value string, sub ...string) error {
	_, err := client.CoreV1().Pods("default").Patch(ctx, name, types.MergePatchType, labelPatch(label, value),
		metav1.PatchOptions{}, sub...)
	return err
}

// TestHoldWhileNodesAreUnreported checks what the API server does while the cluster waits for a node
// after a restore: new pods of StatefulSets are held and stay so, new nodes are unreported, and the node
// cannot be deleted. Nothing of this happens before and after.
func TestHoldWhileNodesAreUnreported(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	mustCreateAccount(t, s)
	ctx := t.Context()
	pods, nodes := s.Client.CoreV1().Pods("default"), s.Client.CoreV1().Nodes()
	held := func(p *corev1.Pod) string {
		t.Helper()
		got, err := pods.Create(ctx, p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Labels[restorehold.Held]
	}
	createNode(t, s.Client, "n1", nil)
	if v := held(setOf("before-0")); v != "" {
		t.Errorf("a pod before the restore is held: %q", v)
	}
	if err := labelNode(ctx, s.Client, "n1", restorehold.Unreported, "7"); err != nil {
		t.Fatal(err)
	}
	i := 0
	poll(t, "a held pod", func(context.Context) bool {
		i++
		return held(setOf(fmt.Sprintf("db-%d", i))) == "7"
	})
	if v := held(pod("other", "")); v != "" {
		t.Errorf("a pod without an identity is held: %q", v)
	}
	bound := setOf("bound-0")
	bound.Spec.NodeName = "n2"
	if v := held(bound); v != "7" {
		t.Errorf("a pod with a node is not held: %q", v)
	}
	const want = "the pod starts when these nodes have reported after the restore of the cluster, or are fenced: n1"
	for _, sub := range [][]string{nil, {"status"}} {
		if err := labelPod(ctx, s.Client, "bound-0", restorehold.Held, "", sub...); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("release by %v: %v", sub, err)
		}
	}
	if err := labelPod(ctx, s.Client, "bound-0", "a", "b"); err != nil {
		t.Error("another label: ", err)
	}

	createNode(t, s.Client, "n3", nil)
	if n, err := nodes.Get(ctx, "n3", metav1.GetOptions{}); err != nil || !restorehold.Waiting(n) {
		t.Errorf("a new node: %v, %v", n, err)
	}
	for name, del := range map[string]func() error{
		"one": func() error { return nodes.Delete(ctx, "n1", metav1.DeleteOptions{}) },
		"all": func() error {
			return nodes.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		},
	} {
		if err := del(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"ctl node fence n`) {
			t.Errorf("deletion of %s: %v", name, err)
		}
	}

	for _, name := range []string{"n1", "n3"} {
		if err := labelNode(ctx, s.Client, name, restorehold.Unreported, ""); err != nil {
			t.Fatal(err)
		}
	}
	poll(t, "the release", func(ctx context.Context) bool {
		return labelPod(ctx, s.Client, "bound-0", restorehold.Held, "") == nil
	})
	if v := held(setOf("after-0")); v != "" {
		t.Errorf("a pod after the last report is held: %q", v)
	}
	createNode(t, s.Client, "n4", nil)
	if n, err := nodes.Get(ctx, "n4", metav1.GetOptions{}); err != nil || restorehold.Waiting(n) {
		t.Errorf("a new node after the last report: %v, %v", n, err)
	}
	if err := nodes.Delete(ctx, "n1", metav1.DeleteOptions{}); err != nil {
		t.Error("deletion of a reported node: ", err)
	}
}

// TestNodesOnlyReport checks that the only mark that a kubelet may change is that its own node is
// unreported, and that a server that has just started knows the marks.
func TestNodesOnlyReport(t *testing.T) {
	first := testserver.Start(t, testserver.Options{})
	createNode(t, first.Client, "n1", map[string]string{restorehold.Unreported: "7"})
	first.Stop(t)
	s := testserver.Start(t, testserver.Options{KV: first.KV, Dir: first.Dir})
	mustCreateAccount(t, s)
	ctx := t.Context()
	if p, err := s.Client.CoreV1().Pods("default").Create(ctx, setOf("db-0"), metav1.CreateOptions{}); err != nil ||
		!restorehold.IsHeld(p) {
		t.Errorf("the first pod: %v, %v", p, err)
	}
	node := clientFor(t, s.UserConfig(t, "system:node:n1", "system:nodes"))
	for _, tc := range []struct{ label, value string }{
		{restorehold.Unreported, "8"}, {restorehold.Fenced, "7"},
	} {
		if err := labelNode(ctx, node, "n1", tc.label, tc.value); !apierrors.IsForbidden(err) {
			t.Errorf("%s=%s: %v", tc.label, tc.value, err)
		}
		other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", Labels: map[string]string{tc.label: tc.value}}}
		if _, err := clientFor(t, s.UserConfig(t, "system:node:n2", "system:nodes")).CoreV1().Nodes().Create(ctx, other,
			metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("new node with %s=%s: %v", tc.label, tc.value, err)
		}
	}
	if err := labelNode(ctx, node, "n1", restorehold.Unreported, ""); err != nil {
		t.Error("report: ", err)
	}
	if err := labelNode(ctx, node, "n1", restorehold.Unreported, "7"); !apierrors.IsForbidden(err) {
		t.Error("new mark: ", err)
	}
	if err := labelNode(ctx, node, "n1", "example.com/a", "b"); err != nil {
		t.Error("another label: ", err)
	}
}

// TestFencedNodeOnlyReads checks that a fenced node does not delay pods, and may only read until its
// fence ends.
func TestFencedNodeOnlyReads(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	mustCreateAccount(t, s)
	ctx := t.Context()
	mark := map[string]string{restorehold.Unreported: "7", restorehold.Fenced: "7"}
	createNode(t, s.Client, "n1", mark)
	createNode(t, s.Client, "n2", nil)
	node := clientFor(t, s.UserConfig(t, "system:node:n1", "system:nodes"))
	write := func(ctx context.Context) error {
		_, err := node.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, []byte(`{"status":{"phase":""}}`),
			metav1.PatchOptions{}, "status")
		return err
	}
	poll(t, "the fence", func(ctx context.Context) bool {
		err := write(ctx)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "node 'n1' is fenced")
	})
	if err := labelNode(ctx, node, "n1", restorehold.Unreported, ""); !apierrors.IsForbidden(err) {
		t.Error("report of a fenced node: ", err)
	}
	if err := labelNode(ctx, s.Client, "n1", restorehold.Unreported, ""); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `"ctl node unfence n1" ends the fence`) {
		t.Error("removal of the other label of a fenced node: ", err)
	}
	if err := node.CoreV1().Pods("default").Delete(ctx, "p", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Error("deletion by a fenced node: ", err)
	}
	if _, err := node.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{}); err != nil {
		t.Error("read of a fenced node: ", err)
	}
	if p, err := s.Client.CoreV1().Pods("default").Create(ctx, setOf("db-0"), metav1.CreateOptions{}); err != nil ||
		restorehold.IsHeld(p) {
		t.Errorf("a pod while a node is fenced: %v, %v", p, err)
	}
	other := clientFor(t, s.UserConfig(t, "system:node:n2", "system:nodes"))
	if err := labelNode(ctx, other, "n2", "example.com/a", "b"); err != nil {
		t.Error("another node: ", err)
	}
	if err := labelNode(ctx, s.Client, "n1", restorehold.Fenced, ""); err != nil {
		t.Fatal(err)
	}
	poll(t, "the end of the fence", func(ctx context.Context) bool { return write(ctx) == nil })
	i := 0
	poll(t, "a held pod", func(ctx context.Context) bool {
		i++
		p, err := s.Client.CoreV1().Pods("default").Create(ctx, setOf(fmt.Sprintf("web-%d", i)), metav1.CreateOptions{})
		return err == nil && restorehold.IsHeld(p)
	})
	if err := labelNode(ctx, node, "n1", restorehold.Unreported, ""); err != nil {
		t.Error("report after the end of the fence: ", err)
	}
}

// TestReleaseReadsTheStore checks that a release of a pod is accepted at once after the last report, even
// if the server has not yet received the report in its watch of nodes.
func TestReleaseReadsTheStore(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	mustCreateAccount(t, s)
	ctx := t.Context()
	for i := range 20 {
		createNode(t, s.Client, fmt.Sprint("n", i), map[string]string{restorehold.Unreported: "7"})
		name := fmt.Sprint("db-", i)
		p := setOf(name)
		p.Labels = map[string]string{restorehold.Held: "7"}
		if _, err := s.Client.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := labelNode(ctx, s.Client, fmt.Sprint("n", i), restorehold.Unreported, ""); err != nil {
			t.Fatal(err)
		}
		if err := labelPod(ctx, s.Client, name, restorehold.Held, ""); err != nil {
			t.Error("release after the last report: ", err)
		}
	}
}
