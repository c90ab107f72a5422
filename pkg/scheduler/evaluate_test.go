// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"pgregory.net/rapid"

	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/scheduling"
)

func defaultProfile(t testing.TB) *profile.Profile {
	set, err := profile.Build(&configv1.KubeSchedulerConfiguration{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return set.Profiles[v1.DefaultSchedulerName]
}

func emptyView(t interface{ Fatal(...any) }) *view {
	sources, err := newSources(Config{Client: fake.NewSimpleClientset(), Profiles: &profile.Set{}})
	if err != nil {
		t.Fatal(err)
	}
	return &view{Cell: cell.New(), keeper: newKeeper(), sources: sources, evicting: newEvictions(),
		gangs: newGangs(groups{}), reserved: newReservations()}
}

func testNode(name string, milli int64, taint, zone string) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{v1.LabelHostname: name, v1.LabelTopologyZone: zone}},
		Status: v1.NodeStatus{
			Allocatable: v1.ResourceList{
				v1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI), v1.ResourceMemory: resource.MustParse("4Gi"),
				v1.ResourcePods: resource.MustParse("10"),
			},
			Images: []v1.ContainerImage{{Names: []string{"web:latest"}, SizeBytes: 300 << 20}},
		},
	}
	if taint != "" {
		n.Spec.Taints = []v1.Taint{{Key: "t", Value: taint, Effect: v1.TaintEffectNoSchedule}}
	}
	return n
}

// testPod draws a pod of one of a few kinds, so that many pods are in the same class.
func testPod(t *rapid.T, uid int) *v1.Pod {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	app := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "app")
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", uid), Namespace: "default",
			UID: types.UID(fmt.Sprint(uid)), Labels: map[string]string{"app": app}},
		Spec: v1.PodSpec{SchedulerName: v1.DefaultSchedulerName,
			Containers: []v1.Container{{Name: "c", Image: "web", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(int64(kind)*100, resource.DecimalSI)},
			}}}},
	}
	same := &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	switch kind {
	case 1:
		p.Spec.Tolerations = []v1.Toleration{{Key: "t", Operator: v1.TolerationOpExists}}
	case 2:
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80, ContainerPort: 80}}
	case 3:
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: same}}
	case 4:
		p.Spec.Affinity = &v1.Affinity{
			PodAntiAffinity: &v1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
					{TopologyKey: v1.LabelHostname, LabelSelector: same}}}}
	case 5:
		p.Spec.Affinity = &v1.Affinity{
			PodAffinity: &v1.PodAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{
					{Weight: 10, PodAffinityTerm: v1.PodAffinityTerm{TopologyKey: v1.LabelTopologyZone, LabelSelector: same}}}}}
	}
	return p
}

// answers returns, by node name, the pod's total score, or the reason why the node is rejected.
func answers(t *rapid.T, v *view, p *profile.Profile, pod *v1.Pod, ev *evaluator, noms *nominations) map[string]string {
	e, err := ev.evaluate(v, p, v.NewPod(pod), noms)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i, st := range e.statuses {
		n := v.Nodes()[i]
		if alone := e.filter(n); e.reject == nil && (alone == nil) != (st == nil) {
			t.Fatalf("node %s: among all nodes %v, alone %v", n.Name, st, alone)
		}
		if st != nil {
			out[n.Name] = fmt.Sprint(st.Plugin, st.Reasons)
		}
	}
	feasible := e.feasible()
	highest := int64(-1)
	for i, total := range e.totals(feasible) {
		out[v.Nodes()[feasible[i]].Name] = fmt.Sprint(total)
		highest = max(highest, total)
	}
	if n := e.best(rand.New(rand.NewPCG(1, 1))); n == nil && highest >= 0 || n != nil &&
		out[n.Name] != fmt.Sprint(highest) {
		t.Fatalf("best is %v, highest total is %d", n, highest)
	}
	return out
}

// TestKeptVerdictsEqualFreshOnes changes nodes and pods at random, and checks that the cached
// results of a class equal the results of a new evaluator.
func TestKeptVerdictsEqualFreshOnes(t *testing.T) {
	p := defaultProfile(t)
	rapid.Check(t, func(t *rapid.T) {
		v, kept, noms := emptyView(t), newEvaluator(), newNominations()
		uids := 0
		node := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("n", rapid.IntRange(0, 6).Draw(t, "node")) })
		var placed []types.UID
		t.Repeat(map[string]func(*rapid.T){
			"set node": func(t *rapid.T) {
				v.SetNode(testNode(node.Draw(t, "name"), rapid.SampledFrom([]int64{500, 2000}).Draw(t, "cpu"),
					rapid.SampledFrom([]string{"", "", "a"}).Draw(t, "taint"),
					rapid.SampledFrom([]string{"z1", "z2"}).Draw(t, "zone")))
			},
			"remove node": func(t *rapid.T) { v.RemoveNode(node.Draw(t, "name")) },
			"place": func(t *rapid.T) {
				uids++
				pod := testPod(t, uids)
				pod.Spec.NodeName = node.Draw(t, "on")
				v.SetPod(pod)
				placed = append(placed, pod.UID)
			},
			"remove pod": func(t *rapid.T) {
				if len(placed) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(placed)-1).Draw(t, "pod")
				v.RemovePod(placed[i])
				placed = slices.Delete(placed, i, i+1)
			},
			"nominate": func(t *rapid.T) {
				uids++
				noms.set(v.NewPod(testPod(t, uids)), node.Draw(t, "on"))
			},
			"": func(t *rapid.T) {
				pod := testPod(t, 1_000_000)
				got := answers(t, v, p, pod, kept, noms)
				want := answers(t, v, p, pod, newEvaluator(), noms)
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("cached results differ from new ones (-new +cached):\n%s", d)
				}
			},
		})
	})
}

// TestVictimsAreNeeded checks that a pod fits without its victims, that it does not fit if one of
// the victims stays, and that no victim has a higher priority than the pod.
func TestVictimsAreNeeded(t *testing.T) {
	p := defaultProfile(t)
	rapid.Check(t, func(t *rapid.T) {
		v := emptyView(t)
		for i := range 3 {
			v.SetNode(testNode(fmt.Sprint("n", i), 1000, "", fmt.Sprint("z", i%2)))
		}
		for uid := range rapid.IntRange(0, 20).Draw(t, "pods") {
			pod := testPod(t, uid)
			prio := rapid.Int32Range(0, 3).Draw(t, "priority")
			pod.Spec.Priority, pod.Spec.NodeName = &prio, fmt.Sprint("n", rapid.IntRange(0, 2).Draw(t, "on"))
			v.SetPod(pod)
		}
		pod, prio := testPod(t, 1000), int32(2)
		pod.Spec.Priority = &prio
		e, err := newEvaluator().evaluate(v, p, v.NewPod(pod), newNominations())
		if err != nil || len(e.feasible()) > 0 {
			t.Skip()
		}
		found, why := e.preempt(nil, rand.New(rand.NewPCG(1, 1)))
		if len(found) == 0 {
			if why == "" {
				t.Fatal("neither victims nor a reason")
			}
			return
		}
		c := slices.MinFunc(found, compareCandidates)
		without := func(spared *scheduling.Pod) *scheduling.Status {
			tr := e.trial(v.NodeByName(c.node))
			defer tr.end()
			for _, victim := range c.victims {
				if victim != spared {
					tr.adjust(victim, -1)
				}
			}
			return tr.fits()
		}
		if st := without(nil); st != nil {
			t.Fatalf("does not fit without the victims: %v", st.Reasons)
		}
		for _, victim := range c.victims {
			if victim.Priority() >= prio {
				t.Fatalf("victim of priority %d for a pod of %d", victim.Priority(), prio)
			}
			if without(victim) == nil {
				t.Fatalf("victim %s is not needed", victim.Name)
			}
		}
	})
}

func BenchmarkPlaceAlike(b *testing.B) {
	for _, nodes := range []int{100, 5000} {
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			p, v, ev, noms, r := defaultProfile(b), emptyView(b), newEvaluator(), newNominations(), rand.New(rand.NewPCG(1, 1))
			for i := range nodes {
				n := testNode(fmt.Sprint("n", i), 1_000_000, "", fmt.Sprint("z", i%3))
				n.Status.Allocatable[v1.ResourcePods] = resource.MustParse("1000000")
				v.SetNode(n)
			}
			pod := &v1.Pod{Spec: v1.PodSpec{SchedulerName: v1.DefaultSchedulerName,
				Containers: []v1.Container{{Name: "c", Image: "web"}}}}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				placed := pod.DeepCopy()
				placed.UID = types.UID(fmt.Sprint(i))
				compiled := v.NewPod(placed)
				e, err := ev.evaluate(v, p, compiled, noms)
				if err != nil {
					b.Fatal(err)
				}
				v.Assume(compiled, e.best(r).Name)
			}
		})
	}
}
