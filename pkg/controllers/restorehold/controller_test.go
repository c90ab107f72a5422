// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package restorehold

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
	"keelson.dev/keelson/pkg/restorehold"
)

// TestRelease checks that the controller, with the rights of its own account, releases held pods when the
// cluster waits for no node any more, that it says in the pods for which nodes they wait until then, and
// that it deletes a Node that the restore has created once it is reported.
func TestRelease(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.Account(t, s)
	ctx := t.Context()
	for _, n := range []metav1.ObjectMeta{
		{Name: "n3"}, // first, because the API server marks nodes that are created while it waits for others
		{Name: "n1", Labels: map[string]string{restorehold.Unreported: "7"}},
		{Name: "n2", Labels: map[string]string{restorehold.Unreported: "7"},
			Annotations: map[string]string{restorehold.Placeholder: ""}},
	} {
		if _, err := s.Client.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: n}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create := func(name, node string) {
		t.Helper()
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{restorehold.Held: "7"}},
			Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c", Image: "i"}}}}
		if _, err := s.Client.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("pending", "")
	create("bound", "n1")
	controllertest.RunAs(t, s, "restore-hold-controller", controller.Options{}, New)

	says := func(message string) {
		t.Helper()
		controllertest.Eventually(t, message, func(ctx context.Context) (any, bool) {
			p, err := s.Client.CoreV1().Pods("default").Get(ctx, "pending", metav1.GetOptions{})
			if err != nil {
				return err, false
			}
			for _, c := range p.Status.Conditions {
				if c.Type == v1.PodScheduled {
					return c, c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonSchedulingGated &&
						strings.HasSuffix(c.Message, ": "+message)
				}
			}
			return p.Status.Conditions, false
		})
	}
	label := func(node, label, value string) {
		t.Helper()
		body := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, label, value)
		if _, err := s.Client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, body,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	says("n1, n2")
	label("n2", restorehold.Unreported, "null")
	says("n1")
	controllertest.Eventually(t, "deletion of n2", func(ctx context.Context) (any, bool) {
		_, err := s.Client.CoreV1().Nodes().Get(ctx, "n2", metav1.GetOptions{})
		return err, apierrors.IsNotFound(err)
	})
	label("n3", restorehold.Unreported, `"8"`) // the end of a fence
	says("n1, n3")
	label("n1", restorehold.Fenced, `"9"`)
	says("n3")
	list, err := s.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: restorehold.Held})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("held while the cluster waits: %d, %v", len(list.Items), err)
	}
	label("n3", restorehold.Unreported, "null")
	controllertest.Eventually(t, "release", func(ctx context.Context) (any, bool) {
		list, err := s.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: restorehold.Held})
		return list, err == nil && len(list.Items) == 0
	})
	create("late", "n1")
	controllertest.Eventually(t, "release of a pod that was held too late", func(ctx context.Context) (any, bool) {
		p, err := s.Client.CoreV1().Pods("default").Get(ctx, "late", metav1.GetOptions{})
		return p, err == nil && !restorehold.IsHeld(p)
	})
}
