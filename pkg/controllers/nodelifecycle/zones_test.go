// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodelifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func TestStateOf(t *testing.T) {
	for _, tc := range []struct {
		ready, notReady int
		want            state
	}{
		{0, 0, normal}, {1, 0, normal}, {0, 1, full}, {1, 1, normal}, {1, 2, normal}, {2, 3, partial},
		{3, 3, normal}, {9, 11, partial}, {0, 20, full},
	} {
		if got := stateOf(tc.ready, tc.notReady, 0.55); got != tc.want {
			t.Errorf("%d ready, %d not: %v, want %v", tc.ready, tc.notReady, got, tc.want)
		}
	}
}

// nodes returns nodes of a zone with the given numbers of ready and not ready nodes.
func nodes(zone string, ready, notReady int) []*v1.Node {
	var out []*v1.Node
	for i := range ready + notReady {
		status := v1.ConditionTrue
		if i >= ready {
			status = v1.ConditionUnknown
		}
		out = append(out, &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", zone, i),
				Labels: map[string]string{v1.LabelTopologyZone: zone}},
			Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: status}}},
		})
	}
	return out
}

var usual = controller.Evictions{Rate: 0.1, SecondaryRate: 0.01, LargeZone: 50, Threshold: 0.55}

// evicted returns how many nodes of a zone may get an evicting taint within the duration d.
func evicted(z *zones, zone string, from time.Time, d time.Duration) int {
	n := 0
	for at := from; at.Sub(from) < d; at = at.Add(monitorPeriod) {
		if z.take(nodes(zone, 0, 1)[0], at) {
			n++
		}
	}
	return n
}

func TestRates(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name            string
		ready, notReady int
		want            int // number of nodes that may get an evicting taint within 200 s
	}{
		{"healthy", 40, 20, 20},
		{"mostly broken, small", 10, 20, 0},
		{"mostly broken, large", 20, 40, 2},
		{"broken", 0, 20, 20}, // the other zone is healthy, so eviction is not stopped
	} {
		z := newZones(usual, newMetrics(nil))
		// In a healthy zone one node may get the taint at once, and the others follow at the zone's
		// rate.
		z.update(append(nodes("a", tc.ready, tc.notReady), nodes("b", 3, 0)...), begin)
		if got := evicted(z, "a", begin, 200*time.Second); got < tc.want-1 || got > tc.want+1 {
			t.Errorf("%s: %d nodes, want %d", tc.name, got, tc.want)
		}
	}
}

// TestExcludedFromDisruption checks that nodes with the label for it do not count when it is decided whether a zone
// or the whole cluster is disrupted.
func TestExcludedFromDisruption(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	exclude := func(nodes []*v1.Node) []*v1.Node {
		for _, n := range nodes {
			n.Labels[excludeLabel] = ""
		}
		return nodes
	}
	for name, tc := range map[string]struct {
		nodes         []*v1.Node
		stopped, take bool
	}{
		"most of a zone":           {nodes("a", 1, 3), false, false},
		"most, but excluded":       {append(nodes("a", 1, 1), exclude(nodes("a", 0, 2))...), false, true},
		"all but the excluded":     {append(nodes("a", 0, 2), exclude(nodes("a", 1, 0))...), true, false},
		"excluded in another zone": {append(nodes("a", 2, 1), exclude(nodes("b", 0, 3))...), false, true},
		"only excluded are silent": {append(nodes("a", 1, 0), exclude(nodes("a", 0, 3))...), false, true},
		"there are only excluded":  {exclude(nodes("a", 0, 3)), false, true},
	} {
		z := newZones(usual, newMetrics(nil))
		z.update(tc.nodes, begin)
		if z.stopped() != tc.stopped {
			t.Errorf("%s: stopped is %t", name, z.stopped())
		}
		if took := z.take(nodes("a", 0, 1)[0], begin); took != tc.take {
			t.Errorf("%s: evicts is %t", name, took)
		}
	}
}

func TestAllSilent(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	z := newZones(usual, newMetrics(nil))
	if z.update(append(nodes("a", 1, 2), nodes("b", 2, 0)...), begin) || z.stopped() {
		t.Fatal("stopped with nodes ready")
	}
	if z.update(append(nodes("a", 0, 3), nodes("b", 0, 2)...), begin) || !z.stopped() ||
		z.take(nodes("a", 0, 1)[0], begin) {
		t.Fatal("not stopped with no node ready")
	}
	if !z.update(append(nodes("a", 1, 2), nodes("b", 0, 2)...), begin) || z.stopped() {
		t.Fatal("stopped with a node ready again")
	}
	if z.update(nil, begin) || z.stopped() {
		t.Fatal("stopped without nodes")
	}
}

func TestWantedTaints(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	n := nodes("a", 0, 1)[0]
	n.Spec.Unschedulable = true
	n.Spec.Taints = []v1.Taint{
		{Key: "mine", Effect: v1.TaintEffectNoExecute},
		{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoExecute},
		{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: now.Add(-time.Hour)}},
	}
	got, changed := mergeTaints(n.Spec.Taints, wantedTaints(n, true), now)
	want := map[string]bool{
		"mine:NoExecute": true, v1.TaintNodeUnreachable + ":NoSchedule": true, v1.TaintNodeUnreachable +
			":NoExecute": true, v1.TaintNodeUnschedulable + ":NoSchedule": true,
	}
	if !changed || len(got) != len(want) {
		t.Errorf("changed %v, taints %v", changed, got)
	}
	for _, taint := range got {
		if !want[taint.Key+":"+string(taint.Effect)] {
			t.Errorf("unwanted %v", taint)
		}
		if taint.Key == v1.TaintNodeUnreachable && taint.Effect == v1.TaintEffectNoSchedule &&
			!taint.TimeAdded.Time.Equal(now.Add(-time.Hour)) {
			t.Error("a remaining taint lost its time")
		}
	}
	if again, changed := mergeTaints(got, wantedTaints(n, true), now.Add(time.Minute)); changed {
		t.Errorf("changed again: %v", again)
	}
}

// TestZoneMetrics checks the metrics about a zone, also after its last node was deleted.
func TestZoneMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	z, begin := newZones(usual, newMetrics(r)), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		nodes                   []*v1.Node
		size, health, unhealthy float64
	}{{nodes("a", 3, 1), 4, 75, 1}, {nodes("a", 0, 2), 2, 0, 2}, {nil, 0, 100, 0}} {
		z.update(tc.nodes, begin)
		got := controllertest.Metrics(t, r)
		for name, want := range map[string]float64{
			"zone_size": tc.size, "zone_health": tc.health, "unhealthy_nodes_in_zone": tc.unhealthy, "evictions_total": 0,
		} {
			// The zone's key is that of Kubernetes, with a zero byte between region and zone.
			if value, ok := got["node_collector_"+name+"{zone=:\x00:a}"]; !ok || value != want {
				t.Errorf("%s is %v, want %v: %v", name, value, want, got)
			}
		}
	}
}
