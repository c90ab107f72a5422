// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

const (
	// rateWindow is the time span over which a rate is computed, if counts of that age exist. Over
	// a shorter span, a process that was blocked and then catches up on its work would look busier
	// than it is.
	rateWindow = 10 * time.Second
	// minRate is the minimum time span over which a rate is computed.
	minRate = time.Second
	// countsApart is the minimum time between two counts that are kept for computing rates.
	countsApart = rateWindow / 4
	// countsKept is the maximum age of a count. A rate over a longer time would say little about
	// the present.
	countsKept = 2 * time.Minute
)

// rates computes how fast counters grow. Counters are identified by name. It is safe for concurrent
// use.
type rates struct {
	mu     sync.Mutex
	byName map[string]*rate
	swept  time.Time
}

// observe adds the value that a counter has now. It returns the counter's growth per second, or nil
// if the counts do not suffice to compute it.
func (r *rates) observe(name string, now time.Time, total uint64) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(now)
	if r.byName[name] == nil {
		r.byName[name] = &rate{}
	}
	return r.byName[name].observe(now, total)
}

// sweep drops counters of resource usage that have not been observed recently. The caller holds
// r.mu.
func (r *rates) sweep(now time.Time) {
	if r.byName == nil {
		r.byName = map[string]*rate{}
	}
	if age := now.Sub(r.swept); age >= 0 && age < countsKept {
		return
	}
	r.swept = now
	for name, one := range r.byName {
		if !one.isRecent(now) {
			delete(r.byName, name)
		}
	}
}

// pod sets the CPU rates of a pod and its containers to the rates over rateWindow. As long as such
// a rate is not known, pod keeps the rate that the runtime reports, which may cover only a moment.
func (r *rates) pod(item *runtimeapi.PodSandboxStats, pod *statsapi.PodStats) {
	r.processors("pod/"+item.GetAttributes().GetId(), pod.CPU)
	for i, c := range item.GetLinux().GetContainers() {
		r.processors("container/"+c.GetAttributes().GetId(), pod.Containers[i].CPU)
	}
}

func (r *rates) processors(name string, cpu *statsapi.CPUStats) {
	if cpu == nil || cpu.UsageCoreNanoSeconds == nil {
		return
	}
	if v := r.observe(name, cpu.Time.Time, *cpu.UsageCoreNanoSeconds); v != nil {
		cpu.UsageNanoCores = v
	}
}

// count is the value of a counter at one time.
type count struct {
	at    time.Time
	total uint64
}

// rate computes how fast one counter grows.
type rate struct {
	counts []count // oldest first; the first is the newest one that is at least rateWindow old, if there is one
}

// isRecent reports whether the newest count is younger than countsKept.
func (r *rate) isRecent(now time.Time) bool {
	if len(r.counts) == 0 {
		return false
	}
	age := now.Sub(r.counts[len(r.counts)-1].at)
	return age >= 0 && age < countsKept
}

func (r *rate) observe(now time.Time, total uint64) *uint64 {
	// Start again if there is no recent count, the counter was reset or the clock was set back.
	if !r.isRecent(now) || total < r.counts[len(r.counts)-1].total {
		r.counts = append(r.counts[:0], count{now, total})
		return nil
	}
	for len(r.counts) > 1 && (now.Sub(r.counts[1].at) >= rateWindow || now.Sub(r.counts[0].at) >= countsKept) {
		r.counts = r.counts[1:]
	}
	if now.Sub(r.counts[len(r.counts)-1].at) >= countsApart {
		r.counts = append(r.counts, count{now, total})
	}
	since := r.counts[0]
	spent := now.Sub(since.at)
	if spent < minRate {
		return nil
	}
	speed := uint64(float64(total-since.total) / spent.Seconds())
	return &speed
}
