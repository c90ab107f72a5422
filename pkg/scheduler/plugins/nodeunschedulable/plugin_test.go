// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeunschedulable_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/scheduler/plugins/nodeunschedulable"
	"keelson.dev/keelson/pkg/scheduler/plugins/plugintest"
)

func TestFilter(t *testing.T) {
	cordoned := plugintest.Node("cordoned", func(n *v1.Node) { n.Spec.Unschedulable = true })
	view := plugintest.NewView([]*v1.Node{plugintest.Node("a"), cordoned})
	want := map[string]string{"cordoned": "[node(s) were unschedulable]"}
	if diff := cmp.Diff(want, view.Reject(nodeunschedulable.New(), plugintest.Pod("p"))); diff != "" {
		t.Error(diff)
	}
	tolerant := plugintest.Pod("p", func(p *v1.Pod) {
		p.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists}}
	})
	if got := view.Reject(nodeunschedulable.New(), tolerant); len(got) != 0 {
		t.Errorf("a pod that tolerates the cordon is rejected: %v", got)
	}
}
