// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodename_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/scheduler/plugins/nodename"
	"keelson.dev/keelson/pkg/scheduler/plugins/plugintest"
)

func TestFilter(t *testing.T) {
	view := plugintest.NewView([]*v1.Node{plugintest.Node("a"), plugintest.Node("b")})
	want := map[string]string{"b": "[node(s) didn't match the requested node name]"}
	if diff := cmp.Diff(want, view.Reject(nodename.New(), plugintest.Pod("p", plugintest.On("a")))); diff != "" {
		t.Error(diff)
	}
	if got := view.Reject(nodename.New(), plugintest.Pod("p")); len(got) != 0 {
		t.Errorf("a pod without a node name is rejected: %v", got)
	}
}
