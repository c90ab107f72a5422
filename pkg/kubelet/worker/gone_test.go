// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestNoWorkerOnRemoved checks that a pod still has a worker when Release.Forget is called, and no
// longer has one when Release.Removed is called, because Removed may start another pod in its
// place.
func TestNoWorkerOnRemoved(t *testing.T) {
	bubble(t, testPod(v1.RestartPolicyAlways, "a"), func(t *testing.T, n *testNode) {
		n.remove(1, false)
		pass(time.Minute)
		n.mu.Lock()
		defer n.mu.Unlock()
		told := slices.DeleteFunc(slices.Clone(n.events), func(e string) bool { return e[:4] != "left" && e[:4] != "gone" })
		if want := []string{"left, known: true", "gone, known: false"}; !slices.Equal(told, want) {
			t.Errorf("got %q, want %q", told, want)
		}
	})
}

// TestReleaseOfCompletedPod checks that a pod that completes is released exactly once, before its last status
// is reported. It is forgotten only when it has been deleted from the API.
func TestReleaseOfCompletedPod(t *testing.T) {
	bubble(t, testPod(v1.RestartPolicyNever, "a"), func(t *testing.T, n *testNode) {
		pass(10 * time.Second)
		n.runtime.die(n.runtime.running("a"), 0)
		pass(time.Minute)
		n.mu.Lock()
		released, written, events := slices.Clone(n.released), slices.Clone(n.written), slices.Clone(n.events)
		n.mu.Unlock()
		if len(released) != 1 || released[0] >= len(written) || written[released[0]].Phase != v1.PodSucceeded {
			t.Errorf("released after statuses %v of %d; want once, before the first status Succeeded",
				released, len(written))
		}
		if slices.Contains(events, "left, known: true") {
			t.Error("the pod was forgotten before it was deleted")
		}
		n.remove(1, false)
		pass(time.Minute)
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.released) != 1 || !slices.Contains(n.events, "left, known: true") {
			t.Errorf("after the deletion: released %v, events %q", n.released, n.events)
		}
	})
}
