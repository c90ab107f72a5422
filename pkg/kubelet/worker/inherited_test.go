// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
)

// TestVolumesAfterRestart checks that a restarted kubelet updates the volumes of a running pod. The
// previous kubelet process prepared these volumes, so the new one must not prepare them again.
func TestVolumesAfterRestart(t *testing.T) {
	bubble(t, testPod(v1.RestartPolicyAlways, "a"), func(t *testing.T, n *testNode) {
		n.stop()
		n.runtime.mu.Lock()
		n.runtime.calls["Update of volumes in use"] = 0
		n.runtime.mu.Unlock()
		n.start()
		synctest.Wait()
		n.runtime.mu.Lock()
		defer n.runtime.mu.Unlock()
		if n.runtime.calls["Update of volumes in use"] == 0 || n.runtime.calls["Prepare"] != 1 {
			t.Errorf("calls %v", n.runtime.calls)
		}
	})
}
