// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"keelson.dev/api/clock"
	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/keelson/pkg/follow"
	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

// gangCell describes a small cluster in simple form: the CPU of its nodes, the pods that run on
// them, and a gang to be placed.
type gangCell struct {
	cpu     map[string]int64 // CPU of each node, by name
	running []*v1.Pod
	gang    []*v1.Pod
	size    int
	budgets []*policyv1.PodDisruptionBudget
	groups  groups // PodGroups of running pods
}

func milliOf(p *v1.Pod) int64 { return p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() }

func priorityOf(p *v1.Pod) int32 { return *p.Spec.Priority }

// drawGangCell draws a gangCell whose pods request only CPU.
func drawGangCell(t *rapid.T) *gangCell {
	c := &gangCell{cpu: map[string]int64{}}
	small := rapid.Int64Range(1, 4)
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		node, free := fmt.Sprint("n", i), rapid.Int64Range(1, 8).Draw(t, "cpu")
		c.cpu[node] = 1000 * free
		for j := 0; free > 0 && rapid.IntRange(0, 5).Draw(t, "more") > 0; j++ {
			asks := min(free, small.Draw(t, "asks"))
			free -= asks
			p := gangPod(fmt.Sprint(node, "-", j), asks, rapid.Int32Range(0, 4).Draw(t, "priority"))
			p.Spec.NodeName, p.Labels = node, map[string]string{"app": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "app")}
			p.Status.StartTime = &metav1.Time{Time: time.Unix(int64(rapid.IntRange(0, 3).Draw(t, "start")), 0)}
			c.running = append(c.running, p)
		}
	}
	n := rapid.IntRange(2, 5).Draw(t, "gang")
	c.size = rapid.SampledFrom([]int{n, n, (n + 1) / 2}).Draw(t, "size")
	alike, asks := rapid.Bool().Draw(t, "alike"), small.Draw(t, "each asks")
	for i := range n {
		if !alike {
			asks = small.Draw(t, "asks")
		}
		p := gangPod(fmt.Sprint("g", i), asks, rapid.Int32Range(2, 4).Draw(t, "priority"))
		p.Annotations = map[string]string{v1alpha1.AnnGang: "g", v1alpha1.AnnGangSize: fmt.Sprint(c.size)}
		c.gang = append(c.gang, p)
	}
	for _, app := range []string{"x", "y"} {
		if rapid.Bool().Draw(t, "budget") {
			b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: app, Namespace: "default"}}
			b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
			b.Status.DisruptionsAllowed = rapid.Int32Range(0, 2).Draw(t, "allowed")
			c.budgets = append(c.budgets, b)
		}
	}
	return c
}

func gangPod(name string, cpus int64, priority int32) *v1.Pod {
	return asks(1000*cpus, func(p *v1.Pod) { p.Name, p.UID, p.Spec.Priority = name, types.UID(name), &priority })
}

// rank returns the lowest priority in the gang. Only pods below it may be evicted for the gang.
func (c *gangCell) rank() int32 {
	return priorityOf(slices.MinFunc(c.gang, func(a, b *v1.Pod) int { return int(priorityOf(a) - priorityOf(b)) }))
}

// free returns the CPU that each node has left if the running pods for which the given function
// returns true are gone.
func (c *gangCell) free(without func(*v1.Pod) bool) map[string]int64 {
	free := maps.Clone(c.cpu)
	for _, p := range c.running {
		if !without(p) {
			free[p.Spec.NodeName] -= milliOf(p)
		}
	}
	return free
}

// most returns how many of the gang's pods fit if the running pods for which the given function
// returns true are gone. All pods of the gang request the same.
func (c *gangCell) most(without func(*v1.Pod) bool) int {
	n := int64(0)
	for _, free := range c.free(without) {
		n += free / milliOf(c.gang[0])
	}
	return min(int(n), len(c.gang))
}

func (c *gangCell) alike() bool {
	return !slices.ContainsFunc(c.gang, func(p *v1.Pod) bool { return milliOf(p) != milliOf(c.gang[0]) })
}

// scheduler returns a scheduler with the nodes and pods of the cell. The scheduler has popped the
// gang from its queue.
func (c *gangCell) scheduler(t interface {
	Fatal(args ...any)
	Context() context.Context
}) (*Scheduler, []*queue.Item) {
	v := emptyView(t)
	sources := newSourcesOf(follow.NewInformers(nil, 0))
	for _, b := range c.budgets {
		if err := sources.factory.Policy().V1().PodDisruptionBudgets().Informer().GetIndexer().Add(b); err != nil {
			t.Fatal(err)
		}
	}
	s := &Scheduler{
		cfg: Config{Clock: clock.Real(), Rand: rand.New(rand.NewPCG(1, 2))}, sources: sources, view: v,
		evaluator: newEvaluator(), kinds: kinds{}, nominated: newNominations(), gangs: newGangs(c.groups), hold: time.Hour,
	}
	m, err := newMetrics(prometheus.NewRegistry(), s)
	if err != nil {
		t.Fatal(err)
	}
	s.metrics = m
	v.sources, v.devices, v.evicting, v.gangs = sources, sources.devices, newEvictions(), s.gangs
	v.nominated, s.nominated.changed = s.nominated, v.Touch
	s.queue = queue.New(queue.Config{
		Clock: s.cfg.Clock, Gang: c.groups.key, Gate: func(*v1.Pod) *scheduling.Status { return nil },
		Less:           func(a, b scheduling.QueuedPod) bool { return a.Pod.Name < b.Pod.Name },
		InitialBackoff: time.Second, MaxBackoff: time.Second,
	})
	for _, node := range slices.Sorted(maps.Keys(c.cpu)) {
		v.SetNode(testNode(node, c.cpu[node], "", "z"))
	}
	for _, pod := range c.running {
		v.SetPod(pod)
		s.gangs.set(pod, true)
	}
	for _, pod := range c.gang {
		s.queue.Set(pod)
	}
	first, err := s.queue.Pop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	items, complete := s.queue.Gang(first, c.size)
	if !complete {
		t.Fatal("the gang is not complete")
	}
	return s, items
}

// sized returns the gang of items that needs the given number of pods.
func sized(items []*queue.Item, size int) gang {
	return gang{key: groups{}.key(items[0].Pod), size: size}
}

// TestGangPreemption checks the three possible results. If the gang fits, the scheduler places its
// pods. If it fits only without pods of lower priority, the scheduler selects victims among them: the
// gang fits without the victims, but not if any one of them stays. If the gang does not fit even
// then, no pod is evicted. In each case nothing else may have changed.
func TestGangPreemption(t *testing.T) {
	p := defaultProfile(t)
	rapid.Check(t, func(t *rapid.T) {
		c := drawGangCell(t)
		s, items := c.scheduler(t)
		if rapid.Bool().Draw(t, "breaks") {
			s.hold = 0
		}
		out := s.decideGang(p, items, sized(items, c.size), func() {})
		taken, victims, fits, nominated := map[string]int64{}, map[types.UID]*scheduling.Pod{}, 0, 0
		for i, d := range out {
			node := d.node
			if d.nominate != "" {
				node, nominated = d.nominate, nominated+1
			}
			if node != "" {
				taken[node] += milliOf(items[i].Pod)
				fits++
			}
			for _, v := range d.victims {
				if v.Spec.NodeName != d.nominate {
					t.Fatalf("victim %s is on %s, and makes room on %s", v.Name, v.Spec.NodeName, d.nominate)
				}
				victims[v.UID] = v
			}
		}
		goes := func(p *v1.Pod) bool { return victims[p.UID] != nil }
		below := func(p *v1.Pod) bool { return priorityOf(p) < c.rank() }
		holds := func(without func(*v1.Pod) bool) bool {
			free := c.free(without)
			for node, n := range taken {
				if free[node] < n {
					return false
				}
			}
			return true
		}
		switch {
		case fits == 0:
			if len(victims) > 0 {
				t.Fatal("pods are evicted in vain")
			}
			if c.alike() && c.most(below) >= c.size {
				t.Fatalf("%d fit without pods of lower priority, want at least %d", c.most(below), c.size)
			}
		case fits < c.size:
			t.Fatalf("%d pods of %d get nodes", fits, c.size)
		case !holds(goes):
			t.Fatalf("it does not fit: %v of %v", taken, c.free(goes))
		case nominated > 0 && nominated < fits || (nominated > 0) != (len(victims) > 0):
			t.Fatalf("%d of %d are nominated, for %d victims", nominated, fits, len(victims))
		case nominated > 0 && c.alike() && c.most(func(*v1.Pod) bool { return false }) >= c.size:
			t.Fatal("the gang fits, but pods are evicted")
		}
		for uid, v := range victims {
			if !below(v.Pod) {
				t.Fatalf("%s has priority %d, the gang %d", v.Name, v.Priority(), c.rank())
			}
			if holds(func(p *v1.Pod) bool { return p.UID != uid && goes(p) }) {
				t.Fatalf("victim %s is not needed", v.Name)
			}
		}
		c.mustBeAsBefore(t, s, items, out, taken)
	})
}

// TestGangEvictsWholePodGroups checks that either all pods of a PodGroup with the disruptionMode all are
// evicted for a gang, or none. The gang fits without the victims, and needs each PodGroup and each other
// victim to leave.
func TestGangEvictsWholePodGroups(t *testing.T) {
	p := defaultProfile(t)
	rapid.Check(t, func(t *rapid.T) {
		c := drawGangCell(t)
		priority, whole := rapid.Int32Range(0, 2).Draw(t, "group's priority"), podGroup("whole", 1)
		whole.Spec.Priority = &priority
		whole.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
		c.groups = groupsOf(t, whole)
		for _, pod := range c.running {
			if priorityOf(pod) == priority && rapid.Bool().Draw(t, "in group") {
				pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &whole.Name}
			}
		}
		s, items := c.scheduler(t)
		if rapid.Bool().Draw(t, "breaks") {
			s.hold = 0
		}
		taken, victims := map[string]int64{}, map[types.UID]bool{}
		out := s.decideGang(p, items, sized(items, c.size), func() {})
		for i, d := range out {
			if node := d.node + d.nominate; node != "" {
				taken[node] += milliOf(items[i].Pod)
			}
			for _, v := range d.victims {
				if victims[v.UID] {
					t.Fatalf("%s is evicted twice", v.Name)
				}
				victims[v.UID] = true
			}
		}
		holds := func(spared func(*v1.Pod) bool) bool {
			free := c.free(func(p *v1.Pod) bool { return victims[p.UID] && !spared(p) })
			return !slices.ContainsFunc(slices.Collect(maps.Keys(taken)), func(n string) bool { return free[n] < taken[n] })
		}
		if !holds(func(*v1.Pod) bool { return false }) {
			t.Fatalf("it does not fit: %v", taken)
		}
		for _, pod := range c.running {
			grouped := func(p *v1.Pod) bool { return p.Spec.SchedulingGroup != nil }
			together := func(p *v1.Pod) bool { return p == pod || grouped(p) && grouped(pod) }
			if victims[pod.UID] && holds(together) {
				t.Fatalf("victim %s is not needed", pod.Name)
			}
			if i := slices.IndexFunc(c.running, func(p *v1.Pod) bool {
				return together(p) && victims[p.UID] != victims[pod.UID]
			}); i >= 0 {
				t.Fatalf("only one of %s and %s is evicted", pod.Name, c.running[i].Name)
			}
		}
		c.mustBeAsBefore(t, s, items, out, taken)
	})
}

// mustBeAsBefore checks how much CPU the scheduler counts as used on each node. The gang's pods count
// only if the scheduler has placed them, and not if it has only nominated them to nodes. Victims
// still count, because they have not been evicted yet. mustBeAsBefore also checks the nominations.
func (c *gangCell) mustBeAsBefore(t *rapid.T, s *Scheduler, items []*queue.Item, out []decision,
	taken map[string]int64) {
	free := c.free(func(*v1.Pod) bool { return false })
	for node, has := range c.cpu {
		want := has - free[node]
		if slices.ContainsFunc(out, func(d decision) bool { return d.node != "" }) {
			want += taken[node]
		}
		if got := s.view.NodeByName(node).Requested.MilliCPU; got != want {
			t.Fatalf("pods use %dm of %s, want %dm", got, node, want)
		}
	}
	for i, d := range out {
		if got := s.nominated.node[items[i].Pod.UID]; got != d.nominate {
			t.Fatalf("%s is nominated to %q, want %q", items[i].Pod.Name, got, d.nominate)
		}
	}
}

// TestGangPreemptionAndBudgets checks that the evictions for all pods of a gang count against the
// same disruption budgets.
func TestGangPreemptionAndBudgets(t *testing.T) {
	p := defaultProfile(t)
	c := &gangCell{cpu: map[string]int64{}, size: 2}
	for i, app := range []string{"guarded", "guarded", "guarded", "guarded", "guarded", "guarded", "free"} {
		node := fmt.Sprint("n", i)
		c.cpu[node] = 1000
		p := gangPod(fmt.Sprint("low", i), 1, 0)
		p.Spec.NodeName, p.Labels = node, map[string]string{"app": app}
		c.running = append(c.running, p)
	}
	for i := range 2 {
		p := gangPod(fmt.Sprint("g", i), 1, 10)
		p.Annotations = map[string]string{v1alpha1.AnnGang: "g", v1alpha1.AnnGangSize: "2"}
		c.gang = append(c.gang, p)
	}
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}
	b.Status.DisruptionsAllowed = 1
	c.budgets = []*policyv1.PodDisruptionBudget{b}
	s, items := c.scheduler(t)
	guarded, all := 0, 0
	for _, d := range s.decideGang(p, items, sized(items, c.size), func() {}) {
		for _, v := range d.victims {
			all++
			if v.Labels["app"] == "guarded" {
				guarded++
			}
		}
	}
	if all != 2 || guarded > 1 {
		t.Errorf("%d victims, %d of them with a budget; want 2, at most 1 with a budget", all, guarded)
	}
}

// TestGangSparesUnneededVictims checks that a victim which was chosen early is not evicted if a
// later victim alone makes enough room.
func TestGangSparesUnneededVictims(t *testing.T) {
	p := defaultProfile(t)
	c := &gangCell{cpu: map[string]int64{"n0": 4000}, size: 2}
	c.running = []*v1.Pod{gangPod("least", 1, 0), gangPod("large", 3, 1)}
	c.gang = []*v1.Pod{gangPod("g0", 1, 10), gangPod("g1", 2, 10)}
	for i := range 2 {
		c.running[i].Spec.NodeName = "n0"
		c.gang[i].Annotations = map[string]string{v1alpha1.AnnGang: "g", v1alpha1.AnnGangSize: "2"}
	}
	s, items := c.scheduler(t)
	var victims []string
	for _, d := range s.decideGang(p, items, sized(items, c.size), func() {}) {
		for _, v := range d.victims {
			victims = append(victims, v.Name)
		}
	}
	if !slices.Equal(victims, []string{"large"}) {
		t.Errorf("victims are %v, want the large one alone", victims)
	}
}

// TestGangNeverPreempts checks that a gang evicts no pod if one pod of the gang has
// preemptionPolicy Never.
func TestGangNeverPreempts(t *testing.T) {
	p := defaultProfile(t)
	low := gangPod("low", 1, 0)
	low.Spec.NodeName = "n0"
	never, high := v1.PreemptNever, gangPod("g0", 1, 10)
	high.Annotations = map[string]string{v1alpha1.AnnGang: "g", v1alpha1.AnnGangSize: "1"}
	high.Spec.PreemptionPolicy = &never
	c := &gangCell{cpu: map[string]int64{"n0": 1000}, running: []*v1.Pod{low}, gang: []*v1.Pod{high}, size: 1}
	s, items := c.scheduler(t)
	if d := s.decideGang(p, items, sized(items, 1), func() {})[0]; d.nominate != "" || len(d.victims) > 0 {
		t.Errorf("%d victims on %q", len(d.victims), d.nominate)
	}
}

// TestGangWaitsForItsVictims checks that a gang chooses no further victims while its victims are
// terminating, and that it is tried again when the last of them has left its node.
func TestGangWaitsForItsVictims(t *testing.T) {
	p := defaultProfile(t)
	c := &gangCell{cpu: map[string]int64{}, size: 2}
	for i := range 3 {
		node := fmt.Sprint("n", i)
		c.cpu[node] = 1000
		p := gangPod(fmt.Sprint("low", i), 1, 0)
		p.Spec.NodeName = node
		c.running = append(c.running, p)
	}
	for i := range 2 {
		p := gangPod(fmt.Sprint("g", i), 1, 10)
		p.Annotations = map[string]string{v1alpha1.AnnGang: "g", v1alpha1.AnnGangSize: "2"}
		c.gang = append(c.gang, p)
	}
	s, items := c.scheduler(t)
	var victims []*scheduling.Pod
	out := s.decideGang(p, items, sized(items, 2), func() {})
	for i := range out {
		victims = append(victims, out[i].victims...)
		s.queue.Release(items[i])
	}
	if len(victims) != 2 {
		t.Fatalf("%d victims, want 2", len(victims))
	}
	s.podGone(victims[0].Pod)
	if n := s.queue.Counts(); n.Unschedulable != 2 {
		t.Errorf("pods are in the queue as %+v while a victim is there", n)
	}
	s.queue.Happened(scheduling.NodeAdded)
	first, err := s.queue.Pop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, complete := s.queue.Gang(first, 2)
	if !complete {
		t.Fatal("the gang is not complete")
	}
	for _, d := range s.decideGang(p, again, sized(again, 2), func() {}) {
		if len(d.victims) > 0 || d.nominate == "" {
			t.Errorf("%d more victims, nominated to %q", len(d.victims), d.nominate)
		}
	}
	s.podGone(victims[1].Pod)
	if n := s.queue.Counts(); n.Unschedulable != 0 {
		t.Errorf("%d pods wait although there is room", n.Unschedulable)
	}
	if first, err = s.queue.Pop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again, complete = s.queue.Gang(first, 2); !complete {
		t.Fatal("the gang is not complete")
	}
	for _, d := range s.decideGang(p, again, sized(again, 2), func() {}) {
		if d.node == "" {
			t.Error("no node, although there is room: ", d.message)
		}
	}
	if len(s.gangs.awaited)+len(s.nominated.node) > 0 {
		t.Error("state of the gang is left over")
	}
}

// BenchmarkClearing measures the decision about a gang that must evict one pod on each node.
func BenchmarkClearing(b *testing.B) {
	const pods = 5000
	p, c := defaultProfile(b), &gangCell{cpu: map[string]int64{}, size: pods}
	for i := range pods {
		node := fmt.Sprint("n", i)
		c.cpu[node] = 4000
		low, high := gangPod(fmt.Sprint("low", i), 3, 0), gangPod(fmt.Sprint("g", i), 3, 10)
		low.Spec.NodeName = node
		high.Annotations = map[string]string{v1alpha1.AnnGang: "g", v1alpha1.AnnGangSize: fmt.Sprint(pods)}
		c.running, c.gang = append(c.running, low), append(c.gang, high)
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		s, items := c.scheduler(b)
		b.StartTimer()
		for _, d := range s.decideGang(p, items, sized(items, c.size), func() {}) {
			if len(d.victims) != 1 {
				b.Fatalf("%d victims of a pod: %s", len(d.victims), d.message)
			}
		}
	}
}
