// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/csi"
	"keelson.dev/keelson/pkg/kubelet/volume"
)

// TestVolumeLimitFailsPod checks that a pod fails if the node cannot attach one more volume for it.
// The pod's controller then creates another pod, which the scheduler may bind to another node.
func TestVolumeLimitFailsPod(t *testing.T) {
	n := newTestNode(t, testPod(v1.RestartPolicyAlways, "a"))
	n.runtime.full = &volume.Error{Reason: volume.ReasonFailedMount,
		Err: &csi.LimitError{Volume: "v", Message: "no slot is free"}}
	synctest.Test(t, func(t *testing.T) {
		n.start()
		defer n.stop()
		pass(time.Minute)
		s := n.status()
		if s.Phase != v1.PodFailed || s.Reason != "VolumeAttachmentLimitExceeded" ||
			!strings.Contains(s.Message, "Pod was rejected: Node has reached its volume attachment limit") {
			t.Errorf("phase %s, reason %s, message %q", s.Phase, s.Reason, s.Message)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.events) != 1 || !strings.HasPrefix(n.events[0], "VolumeAttachmentLimitExceeded") {
			t.Errorf("events %q", n.events)
		}
	})
}
