// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestForcedDetaches checks that only detaches of volumes in use are counted as forced, with the
// right reason.
func TestForcedDetaches(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	used := []v1.UniqueVolumeName{"used"}
	lost := &v1.Node{Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: v1.TaintNodeOutOfService}}}}
	m.detached(&nodeFacts{inUse: used}, "free")
	m.detached(&nodeFacts{inUse: used}, "used")
	m.detached(&nodeFacts{inUse: used, node: lost}, "used")
	got := controllertest.Metrics(t, r)
	for _, reason := range []string{"timeout", "out-of-service"} {
		name := "attach_detach_controller_attachdetach_controller_forced_detaches{reason=" + reason + "}"
		if got[name] != 1 {
			t.Errorf("%s is %v, want 1", name, got[name])
		}
	}
}
