// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"keelson.dev/scheduling"
)

// TestAllocatableIsExact checks that a node's amounts around 2^53 and around 2^63 are converted
// exactly, or limited to 64 bits.
func TestAllocatableIsExact(t *testing.T) {
	for text, want := range map[string]int64{
		"9007199254740992":     1 << 53,
		"9007199254740993":     1<<53 + 1,
		"9223372036854775807":  math.MaxInt64,
		"9223372036854775808":  math.MaxInt64,
		"-1":                   0,
		"-9223372036854775808": 0,
	} {
		q := resource.MustParse(text)
		r := FromList(v1.ResourceList{v1.ResourceMemory: q, v1.ResourceEphemeralStorage: q, v1.ResourcePods: q,
			"example.com/d": q})
		for name, got := range map[string]int64{
			"memory": r.Memory, "storage": r.EphemeralStorage, "pods": r.Pods, "device": r.Scalar["example.com/d"],
		} {
			if got != want {
				t.Errorf("%s of %s: %d, want %d", text, name, got, want)
			}
		}
	}
}

// TestSumsAreExact adds pods to a node and removes them, and compares the node's sums with sums of
// big integers. A sum that exceeds 64 bits is math.MaxInt64, and is exact again once enough pods
// are removed.
func TestSumsAreExact(t *testing.T) {
	amount := rapid.SampledFrom([]int64{0, 1, 1 << 53, 1<<53 + 1, 1 << 62, math.MaxInt64 - 1, math.MaxInt64})
	rapid.Check(t, func(t *rapid.T) {
		n := &scheduling.Node{Pods: map[string]*scheduling.Pod{}, Ports: map[scheduling.HostPort]int{}}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			uid := fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "pod"))
			if p := n.Pods[uid]; p != nil {
				Adjust(n, p, -1)
			} else {
				Adjust(n, podOf(uid, amount.Draw(t, "memory"), amount.Draw(t, "devices")), 1)
			}
			memory, devices := new(big.Int), new(big.Int)
			for _, p := range n.Pods {
				memory.Add(memory, big.NewInt(p.Requests.Memory))
				devices.Add(devices, big.NewInt(p.Requests.Scalar["example.com/d"]))
			}
			for _, r := range []scheduling.Resources{n.Requested, n.NonZero} {
				if r.Memory != clipped(memory) || r.Scalar["example.com/d"] != clipped(devices) {
					t.Fatalf("the node counts %d and %d, want %v and %v", r.Memory, r.Scalar["example.com/d"], memory,
						devices)
				}
			}
		}
	})
}

func podOf(uid string, memory, devices int64) *scheduling.Pod {
	p := &scheduling.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}}
	p.Requests = scheduling.Resources{Memory: memory, Scalar: map[v1.ResourceName]int64{"example.com/d": devices}}
	p.NonZero = p.Requests
	return p
}

// clipped returns n, or math.MaxInt64 if n is larger.
func clipped(n *big.Int) int64 {
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}
