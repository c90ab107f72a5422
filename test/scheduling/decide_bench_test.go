// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"keelson.dev/keelson/pkg/scheduler"
	"keelson.dev/keelson/pkg/scheduler/profile"
)

// shapes has the kinds of pods in the benchmarks. The function changes a plain pod to pod number i
// of the kind. When ten nodes have per10 such pods on average, the benchmark removes all pods and
// starts to fill the nodes again.
var shapes = []struct {
	name  string
	per10 int
	of    func(p *v1.Pod, i int)
}{
	{"basic", 100, func(*v1.Pod, int) {}},
	{"spread", 100, func(p *v1.Pod, i int) {
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: group(p, i/500),
		}}
	}},
	{"preferred-spread", 100, func(p *v1.Pod, i int) {
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: v1.LabelHostname, WhenUnsatisfiable: v1.ScheduleAnyway, LabelSelector: group(p, i/500),
		}}
	}},
	{"anti-affinity", 100, func(p *v1.Pod, i int) {
		p.Spec.Affinity = &v1.Affinity{
			PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
				{TopologyKey: v1.LabelHostname, LabelSelector: group(p, i/100)},
			}}}
	}},
	{"affinity", 100, func(p *v1.Pod, i int) {
		p.Spec.Affinity = &v1.Affinity{
			PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
				{TopologyKey: v1.LabelTopologyZone, LabelSelector: group(p, i/100)},
			}}}
	}},
	{"preferred-affinity", 100, func(p *v1.Pod, i int) {
		p.Spec.Affinity = &v1.Affinity{
			PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{
				{Weight: 10, PodAffinityTerm: v1.PodAffinityTerm{TopologyKey: v1.LabelHostname, LabelSelector: group(p, i/100)}},
			}}}
	}},
	{"namespace-selector-anti-affinity", 9, func(p *v1.Pod, i int) {
		p.Namespace = fmt.Sprint("ns", i%100)
		p.Spec.Affinity = &v1.Affinity{
			PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
				TopologyKey: v1.LabelHostname, LabelSelector: group(p, 0),
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}},
			}}}}
	}},
}

func group(p *v1.Pod, g int) *metav1.LabelSelector {
	p.Labels = map[string]string{"group": fmt.Sprint(g)}
	return &metav1.LabelSelector{MatchLabels: p.Labels}
}

// largeModel returns a scheduler.Model with empty nodes in three zones and with a hundred
// namespaces.
func largeModel(b *testing.B, nodes int) *scheduler.Model {
	profiles, err := profile.Build(&configv1.KubeSchedulerConfiguration{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	m, err := scheduler.NewModel(profiles.Profiles[v1.DefaultSchedulerName], rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		b.Fatal(err)
	}
	for i := range nodes {
		name := fmt.Sprint("n", i)
		set(b, m, &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name,
				Labels: map[string]string{v1.LabelHostname: name, v1.LabelTopologyZone: fmt.Sprint("z", i%3)}},
			Status: v1.NodeStatus{Allocatable: v1.ResourceList{
				v1.ResourceCPU: milli(32000), v1.ResourceMemory: units(256 << 30), v1.ResourcePods: units(110),
			}},
		})
	}
	for i := range 100 {
		set(b, m, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("ns", i),
			Labels: map[string]string{"team": "red"}}})
	}
	return m
}

func set(b *testing.B, m *scheduler.Model, o runtime.Object) {
	if err := m.Set(o); err != nil {
		b.Fatal(err)
	}
}

func plainPod(i int) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns0", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i))},
		Spec: v1.PodSpec{SchedulerName: v1.DefaultSchedulerName, Containers: []v1.Container{{
			Name: "c", Image: "i",
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: milli(100),
				v1.ResourceMemory: units(160 << 20)}},
		}}},
	}
}

// cpuTime returns the CPU time that the process has used so far. Unlike wall-clock time, it depends
// little on other load of the machine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkDecide places pods one after the other. For each pod, the scheduler filters and scores
// all nodes, and then counts the pod on its node. When the nodes are full, all pods are removed.
func BenchmarkDecide(b *testing.B) {
	for _, shape := range shapes {
		for _, nodes := range []int{100, 1000, 5000, 20000} {
			b.Run(fmt.Sprintf("%s/nodes=%d", shape.name, nodes), func(b *testing.B) {
				m := largeModel(b, nodes)
				var placed []types.UID
				next, cpu := 0, time.Duration(0)
				for b.Loop() {
					if next == 0 {
						cpu = cpuTime()
					}
					p := plainPod(next)
					shape.of(p, next)
					next++
					if _, err := m.Place(p); err != nil {
						b.Fatal(err)
					}
					if placed = append(placed, p.UID); len(placed) >= nodes*shape.per10/10 {
						b.StopTimer()
						for _, uid := range placed {
							m.RemovePod(uid)
						}
						placed = placed[:0]
						b.StartTimer()
					}
				}
				b.ReportMetric(float64(next)/(cpuTime()-cpu).Seconds(), "pods/cpu-s")
			})
		}
	}
}

// BenchmarkCell places 100,000 pods on 10,000 nodes. Two thirds of the pods have the plain shape;
// the other pods have the other shapes.
func BenchmarkCell(b *testing.B) {
	const nodes, pods = 10000, 100000
	for b.Loop() {
		b.StopTimer()
		m := largeModel(b, nodes)
		b.StartTimer()
		for i := range pods {
			p := plainPod(i)
			if i%3 == 0 {
				shape := 1 + i/3%(len(shapes)-1)
				if shapes[shape].name == "namespace-selector-anti-affinity" && i/3 >= nodes {
					shape = 1 // each node has room for at most one such pod
				}
				shapes[shape].of(p, i/3)
			}
			if _, err := m.Place(p); err != nil {
				b.Fatal(err)
			}
		}
	}
}
