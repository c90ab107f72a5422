// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/metrics/metricstest"
)

// machine simulates a node: what the Manager measures on it, and the evictions that the Manager
// requests.
type machine struct {
	o         Observation
	pods      []*v1.Pod
	usage     map[types.UID]*statsapi.PodStats
	reclaim   func()
	evictions []Eviction
	changes   int
	metrics   *metrics.Node
	events    []string
}

func (m *machine) manager(c *testclock.FakeClock, thresholds ...Threshold) *Manager {
	return New(Config{
		Clock: c, Log: slog.New(slog.DiscardHandler), Thresholds: thresholds, Hold: 5 * time.Minute, MaxGrace: 60,
		Observe: func(context.Context) (Observation, error) { return m.o, nil },
		Reclaim: func(context.Context) error { m.reclaim(); return nil },
		Pods:    func() []*v1.Pod { return m.pods },
		Usage:   func(_ context.Context, pod *v1.Pod) (*statsapi.PodStats, error) { return m.usage[pod.UID], nil },
		Evict:   func(e Eviction) { m.evictions = append(m.evictions, e) },
		Event:   func(reason, message string) { m.events = append(m.events, reason+": "+message) },
		Changed: func() { m.changes++ }, Metrics: m.metrics,
	})
}

func (m *machine) add(name string, priority int32, memory uint64) *v1.Pod {
	p := podOf(name, priority, "")
	p.UID = types.UID(name)
	m.pods = append(m.pods, p)
	m.usage[p.UID] = usageOf(memory, 0, 0, 0)
	return p
}

func (m *machine) evicted() []string {
	var out []string
	for _, e := range m.evictions {
		out = append(out, e.Pod.Name)
	}
	return out
}

func TestOneEvictionAtATime(t *testing.T) {
	m := &machine{usage: map[types.UID]*statsapi.PodStats{}, o: Observation{MemoryAvailable: {50, 1000}}}
	m.add("system", 2_000_000_000, 900)
	m.add("small", 0, 10)
	m.add("large", 0, 20)
	c := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	k := m.manager(c, Threshold{Signal: MemoryAvailable, Value: resource.MustParse("100")})
	step := func(d time.Duration, want ...string) {
		t.Helper()
		c.Step(d)
		k.Check(t.Context())
		if got := m.evicted(); !slices.Equal(got, want) {
			t.Fatalf("ended %v, want %v", got, want)
		}
	}
	step(0, "large")
	if e := m.evictions[0]; e.Grace != 1 || !e.Disruption {
		t.Errorf("eviction %+v", e)
	}
	if got := k.Pressures(); !slices.Equal(got, []v1.NodeConditionType{v1.NodeMemoryPressure}) || m.changes != 1 {
		t.Errorf("pressures %v, %d changes", got, m.changes)
	}
	if !slices.Equal(m.events, []string{"EvictionThresholdMet: Attempting to reclaim memory"}) {
		t.Errorf("events %q", m.events)
	}
	step(10*time.Second, "large") // the evicted pod has not ended yet, so no other pod is evicted
	m.pods = slices.DeleteFunc(m.pods, func(p *v1.Pod) bool { return p.Name == "large" })
	step(10*time.Second, "large", "small")
	step(40*time.Second, "large", "small", "small") // the pod "small" has not ended after 30 s, so it is evicted again
	m.o[MemoryAvailable] = Amount{200, 1000}
	step(40*time.Second, "large", "small", "small")
	if len(k.Pressures()) != 1 {
		t.Error("the condition is not held")
	}
	step(5*time.Minute, "large", "small", "small")
	if len(k.Pressures()) != 0 || m.changes != 2 {
		t.Errorf("pressures %v, %d changes", k.Pressures(), m.changes)
	}
}

func TestDiskIsReclaimedFirst(t *testing.T) {
	m := &machine{usage: map[types.UID]*statsapi.PodStats{}, o: Observation{ImageFsAvailable: {5, 100}}}
	m.add("p", 0, 1)
	c := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	k := m.manager(c, Threshold{Signal: ImageFsAvailable, Percent: 15})
	m.reclaim = func() { m.o = Observation{ImageFsAvailable: {20, 100}} }
	if k.Check(t.Context()); len(m.evictions) != 0 {
		t.Errorf("evicted %v without pressure", m.evicted())
	}
	m.o, m.reclaim = Observation{ImageFsAvailable: {5, 100}}, func() {}
	if k.Check(t.Context()); !slices.Equal(m.evicted(), []string{"p"}) {
		t.Errorf("ended %v", m.evicted())
	}
}

func TestSoftThresholdGracePeriod(t *testing.T) {
	for own, want := range map[int64]int64{30: 30, 600: 60} {
		m := &machine{usage: map[types.UID]*statsapi.PodStats{}, o: Observation{MemoryAvailable: {50, 1000}}}
		m.add("p", 0, 1).Spec.TerminationGracePeriodSeconds = &own
		c := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		k := m.manager(c, Threshold{Signal: MemoryAvailable, Value: resource.MustParse("100"), Soft: true,
			Grace: time.Minute})
		k.Check(t.Context())
		if len(m.evictions) != 0 {
			t.Fatal("the grace period is not waited for")
		}
		c.Step(time.Minute)
		if k.Check(t.Context()); len(m.evictions) != 1 || m.evictions[0].Grace != want {
			t.Errorf("ended %+v, want a grace period of %d", m.evictions, want)
		}
	}
}

func TestPodLimits(t *testing.T) {
	m := &machine{usage: map[types.UID]*statsapi.PodStats{}}
	limit := resource.MustParse("10")
	m.add("keeps", 0, 1)
	for _, name := range []string{"a", "b"} {
		p := m.add(name, 0, 1)
		p.Spec.Volumes = []v1.Volume{
			{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
		used := uint64(11)
		m.usage[p.UID].VolumeStats = []statsapi.VolumeStats{{Name: "v", FsStats: statsapi.FsStats{UsedBytes: &used}}}
	}
	m.manager(testclock.NewFakeClock(time.Unix(0, 0))).Check(t.Context())
	if !slices.Equal(m.evicted(), []string{"a", "b"}) || m.evictions[0].Disruption {
		t.Errorf("ended %+v", m.evictions)
	}
}

// TestEvictionsAreCounted checks the metrics: the number of evictions by signal, and the age of the
// measurements for each crossed threshold.
func TestEvictionsAreCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	c := testclock.NewFakeClock(time.Unix(0, 0))
	m := &machine{usage: map[types.UID]*statsapi.PodStats{},
		o: Observation{MemoryAvailable: {50, 1000}, PIDAvailable: {1, 100}}, metrics: metrics.NewNode(r)}
	m.add("p", 0, 1)
	m.manager(c, Threshold{Signal: MemoryAvailable, Value: resource.MustParse("100")},
		Threshold{Signal: PIDAvailable, Value: resource.MustParse("2")}).Check(t.Context())
	limit, used := resource.MustParse("10"), uint64(11)
	p := m.add("q", 0, 1)
	p.Spec.Volumes = []v1.Volume{
		{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
	m.usage[p.UID].VolumeStats = []statsapi.VolumeStats{{Name: "v", FsStats: statsapi.FsStats{UsedBytes: &used}}}
	m.manager(c).Check(t.Context())
	metricstest.Expect(t, metricstest.Scrape(t, r), map[string]float64{
		`kubelet_evictions{eviction_signal="memory.available"}`: 1, `kubelet_evictions{eviction_signal="pid.available"}`: -1,
		`kubelet_evictions{eviction_signal="emptydirfs.limit"}`:                        1,
		`kubelet_eviction_stats_age_seconds_count{eviction_signal="memory.available"}`: 1,
		`kubelet_eviction_stats_age_seconds_count{eviction_signal="pid.available"}`:    1,
	})
}

func TestRefuses(t *testing.T) {
	effort, burst, tolerant := podOf("effort", 0, ""), podOf("burst", 0, "1"), podOf("tolerant", 0, "")
	effort.Status.QOSClass, burst.Status.QOSClass, tolerant.Status.QOSClass = v1.PodQOSBestEffort,
		v1.PodQOSBurstable, v1.PodQOSBestEffort
	tolerant.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists}}
	memory, disk := v1.NodeMemoryPressure, v1.NodeDiskPressure
	for name, c := range map[string]struct {
		holds []v1.NodeConditionType
		pod   *v1.Pod
		want  string
	}{
		"no pressure":     {nil, effort, ""},
		"best effort":     {[]v1.NodeConditionType{memory}, effort, "The node had condition: [MemoryPressure]. "},
		"requests memory": {[]v1.NodeConditionType{memory}, burst, ""},
		"tolerates":       {[]v1.NodeConditionType{memory}, tolerant, ""},
		"disk":            {[]v1.NodeConditionType{disk}, burst, "The node had condition: [DiskPressure]. "},
		"both": {[]v1.NodeConditionType{disk, memory}, tolerant,
			"The node had condition: [DiskPressure MemoryPressure]. "},
		"critical pod": {[]v1.NodeConditionType{disk}, podOf("system", systemCritical, ""), ""},
	} {
		k := New(Config{})
		for _, h := range c.holds {
			k.holds[h] = true
		}
		if got := k.RejectReason(c.pod); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
