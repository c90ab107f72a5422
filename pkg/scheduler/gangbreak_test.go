// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"keelson.dev/api/scheduling/v1alpha1"
)

// outcome returns one line of text for each pod of a gang: the result of its decision.
func outcome(out []decision) []string {
	var all []string
	for _, d := range out {
		line := fmt.Sprintf("on %q, nominated to %q, %q:", d.node, d.nominate, d.message)
		for _, v := range d.victims {
			line += " " + v.Name
		}
		all = append(all, line)
	}
	return all
}

// TestGangBreaksChangeNothing checks that an attempt to place a gang with a pause after each pod
// has the same result as an attempt without pauses, and that the attempt's changes are undone
// during pauses.
func TestGangBreaksChangeNothing(t *testing.T) {
	p := defaultProfile(t)
	rapid.Check(t, func(t *rapid.T) {
		c := drawGangCell(t)
		for i, pod := range c.running { // different start times determine which victims are chosen
			pod.Status.StartTime = &metav1.Time{Time: time.Unix(int64(i), 0)}
		}
		s, items := c.scheduler(t)
		want := outcome(s.decideGang(p, items, sized(items, c.size), func() {}))
		s, items = c.scheduler(t)
		s.hold = 0
		breaks := 0
		got := outcome(s.decideGang(p, items, sized(items, c.size), func() {
			breaks++
			c.mustBeUntouched(t, s)
		}))
		if breaks == 0 {
			t.Fatal("no breaks")
		}
		if !slices.Equal(got, want) {
			t.Fatalf("with breaks:\n%q\nwithout:\n%q", got, want)
		}
	})
}

// mustBeUntouched checks during a pause that only running pods count on nodes, and that no pod is
// nominated.
func (c *gangCell) mustBeUntouched(t *rapid.T, s *Scheduler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := c.free(func(*v1.Pod) bool { return false })
	for node, has := range c.cpu {
		if got := s.view.NodeByName(node).Requested.MilliCPU; got != has-free[node] {
			t.Fatalf("pods use %dm of %s, want %dm", got, node, has-free[node])
		}
	}
	if n := len(s.nominated.node); n > 0 {
		t.Fatalf("%d pods are nominated", n)
	}
}

// TestGangIsOvertaken adds and removes pods during the pauses of an attempt, including pods of the
// gang. At the end the gang must have nodes with enough room, or victims that are still on their
// nodes.
func TestGangIsOvertaken(t *testing.T) {
	p := defaultProfile(t)
	rapid.Check(t, func(t *rapid.T) {
		c := drawGangCell(t)
		s, items := c.scheduler(t)
		s.hold = 0
		came := 0
		out := s.decideGang(p, items, sized(items, c.size), func() {
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				c.come(t, s, fmt.Sprint("new", came))
				came++
			case 1:
				c.leave(t, s)
			case 2:
				pod := rapid.SampledFrom(c.gang).Draw(t, "gone")
				s.podGone(pod)
			}
		})
		taken, gone := map[string]int64{}, map[string]bool{}
		fits := 0
		for i, d := range out {
			for _, v := range d.victims {
				gone[v.Name] = true
				if !slices.ContainsFunc(c.running, func(r *v1.Pod) bool {
					return r.Name == v.Name &&
						r.Spec.NodeName == d.nominate
				}) {
					t.Fatalf("victim %s is not on %s", v.Name, d.nominate)
				}
			}
			if node := d.node + d.nominate; node != "" {
				taken[node] += milliOf(items[i].Pod)
				fits++
			}
		}
		if fits > 0 && fits < c.size || fits == 0 && len(gone) > 0 {
			t.Fatalf("%d of %d pods get nodes, and %d are evicted", fits, c.size, len(gone))
		}
		for node, free := range c.free(func(p *v1.Pod) bool { return gone[p.Name] }) {
			if taken[node] > free {
				t.Fatalf("the gang gets %dm of %s, where %dm are free", taken[node], node, free)
			}
		}
		for uid, node := range s.nominated.node {
			if s.queue.Get(uid) == nil {
				t.Fatalf("deleted pod %s is nominated to %s", uid, node)
			}
		}
	})
}

// come binds a pod to a node with enough room, as another scheduler might. It does nothing if the
// drawn node has no room.
func (c *gangCell) come(t *rapid.T, s *Scheduler, name string) {
	node := rapid.SampledFrom(s.view.Nodes()).Draw(t, "node").Name
	free := c.free(func(*v1.Pod) bool { return false })[node] / 1000
	if free == 0 {
		return
	}
	pod := gangPod(name, rapid.Int64Range(1, free).Draw(t, "asks"), rapid.Int32Range(0, 4).Draw(t, "priority"))
	pod.Spec.NodeName = node
	c.running = append(c.running, pod)
	s.podSet(nil, pod)
}

// leave removes one of the running pods, if there are any.
func (c *gangCell) leave(t *rapid.T, s *Scheduler) {
	if len(c.running) == 0 {
		return
	}
	i := rapid.IntRange(0, len(c.running)-1).Draw(t, "leaves")
	pod := c.running[i]
	c.running = slices.Delete(c.running, i, i+1)
	s.podGone(pod)
}

// TestEarlierPodsAreScheduledInBreaks checks that pods which come before a gang in the queue are
// scheduled during the pauses of its attempt, and that later pods are not.
func TestEarlierPodsAreScheduledInBreaks(t *testing.T) {
	c := &gangCell{cpu: map[string]int64{"n0": 1000}, size: 1}
	c.gang = []*v1.Pod{gangPod("g", 1, 10)}
	c.gang[0].Annotations = map[string]string{v1alpha1.AnnGang: "g", v1alpha1.AnnGangSize: "1"}
	s, items := c.scheduler(t)
	for _, name := range []string{"before", "later"} {
		s.queue.Set(gangPod(name, 1, 10)) // the queue of this test is ordered by name
	}
	for _, want := range []string{"before", ""} {
		got := ""
		if item := s.queue.PopBefore(items[0]); item != nil {
			got = item.Pod.Name
		}
		if got != want {
			t.Errorf("%q comes before the gang, want %q", got, want)
		}
	}
	if first, err := s.queue.Pop(t.Context()); err != nil || first.Pod.Name != "later" {
		t.Errorf("the next pod is %v, error %v", first, err)
	}
}
