// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkPreempt measures preemption on many full nodes. For each pod it makes two decisions: the
// first finds the victim, and the second places the pod after the victim has left.
func BenchmarkPreempt(b *testing.B) {
	const nodes = 5000
	p, r := defaultProfile(b), rand.New(rand.NewPCG(1, 1))
	priority := int32(1000)
	newPod := func(i int, prefix string) *v1.Pod {
		pod := asks(3000, func(p *v1.Pod) {
			p.Name, p.UID = fmt.Sprint(prefix, i), types.UID(fmt.Sprint(prefix, i))
		})
		if prefix == "high" {
			pod.Spec.Priority = &priority
		}
		return pod
	}
	for b.Loop() {
		b.StopTimer()
		v, ev, noms := emptyView(b), newEvaluator(), newNominations()
		v.nominated, noms.changed = noms, v.Touch
		for i := range nodes {
			name := fmt.Sprint("n", i)
			v.SetNode(testNode(name, 4000, "", fmt.Sprint("z", i%3)))
			low := newPod(i, "low")
			low.Spec.NodeName = name
			v.SetPod(low)
		}
		b.StartTimer()
		var high []*v1.Pod
		var gone []types.UID
		for i := range nodes {
			pod := newPod(i, "high")
			e, err := ev.evaluate(v, p, v.NewPod(pod), noms)
			if err != nil || e.best(r) != nil {
				b.Fatal("a full cell has room: ", err)
			}
			found, why := e.preempt(nil, r)
			if why != "" {
				b.Fatal(why)
			}
			c := slices.MinFunc(found, compareCandidates)
			for _, victim := range c.victims {
				v.evicting.add(victim, c.node)
				gone = append(gone, victim.UID)
			}
			noms.set(e.pod, c.node)
			pod.Status.NominatedNodeName = c.node
			high = append(high, pod)
		}
		for _, uid := range gone {
			v.RemovePod(uid)
			v.evicting.remove(uid)
		}
		for _, pod := range high {
			e, err := ev.evaluate(v, p, v.NewPod(pod), noms)
			if err != nil {
				b.Fatal(err)
			}
			n := e.best(r)
			if n == nil {
				b.Fatal("no room was made")
			}
			noms.remove(pod.UID)
			v.Assume(e.pod, n.Name)
		}
		if len(gone) != nodes {
			b.Fatalf("%d victims for %d pods", len(gone), nodes)
		}
	}
	b.ReportMetric(float64(nodes)*float64(b.N)/b.Elapsed().Seconds(), "pods/s")
}
