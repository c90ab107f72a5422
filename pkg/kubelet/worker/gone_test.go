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
