// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"keelson.dev/scheduling"
)

// TestEvictions compares evictions with a plain list of pods.
func TestEvictions(t *testing.T) {
	type eviction struct {
		node     string
		priority int32
	}
	rapid.Check(t, func(t *rapid.T) {
		e, model := newEvictions(), map[types.UID]eviction{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			uid := types.UID(fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "pod")))
			if rapid.Bool().Draw(t, "remove") {
				e.remove(uid)
				delete(model, uid)
			} else {
				m := eviction{fmt.Sprint("n", rapid.IntRange(0, 2).Draw(t, "node")),
					rapid.Int32Range(-1, 3).Draw(t, "priority")}
				e.add(&scheduling.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid},
					Spec: v1.PodSpec{Priority: &m.priority}}}, m.node)
				model[uid] = m
			}
			node := fmt.Sprint("n", rapid.IntRange(0, 3).Draw(t, "asked node"))
			priority := rapid.Int32Range(-2, 4).Draw(t, "asked priority")
			below := false
			for _, m := range model {
				below = below || m.node == node && m.priority < priority
			}
			if got := e.below(node, priority); got != below {
				t.Fatalf("below %d on %s: %t, want %t", priority, node, got, below)
			}
			if _, want := model[uid]; e.has(uid) != want {
				t.Fatalf("has %s: %t, want %t", uid, !want, want)
			}
		}
		if len(model) == 0 && len(e.priorities) > 0 {
			t.Fatal("nodes without evictions remain: ", e.priorities)
		}
	})
}
