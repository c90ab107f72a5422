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
	// rateWindow is the time over which a rate is taken when counts of that age are known: over a shorter one, a
	// process that was kept waiting and catches up would look busy.
	rateWindow = 10 * time.Second
	// minRate is the least time over which a rate is taken.
	minRate = time.Second
	// countsApart is the least time between two counts that are kept.
	countsApart = rateWindow / 4
	// countsKept is how old a count may get before a rate since then means nothing.
	countsKept = 2 * time.Minute
)

// rates are how fast things grow that are counted, by name, as far as somebody asks for them. They are safe for
// concurrent use.
type rates struct {
	mu     sync.Mutex
	byName map[string]*rate
	swept  time.Time
}

// of takes in a count and returns how much it grows in a second, nil if that is not known yet.
func (r *rates) of(name string, now time.Time, total uint64) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(now)
	if r.byName[name] == nil {
		r.byName[name] = &rate{}
	}
	return r.byName[name].of(now, total)
}

// sweep forgets what is asked for no longer. r.mu is held.
func (r *rates) sweep(now time.Time) {
	if r.byName == nil {
		r.byName = map[string]*rate{}
	}
	if age := now.Sub(r.swept); age >= 0 && age < countsKept {
		return
	}
	r.swept = now
	for name, one := range r.byName {
		if !one.known(now) {
			delete(r.byName, name)
		}
	}
}

// pod has a pod and its containers tell how much of processors they use over the window. What the runtime says, which
// may be of a moment, stands until that is known.
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
	if v := r.of(name, cpu.Time.Time, *cpu.UsageCoreNanoSeconds); v != nil {
		cpu.UsageNanoCores = v
	}
}

// count is how much there was at a time.
type count struct {
	at    time.Time
	total uint64
}

// rate is how fast one thing grows.
type rate struct {
	counts []count // the oldest first: one that is as old as the window, and those after it
}

// known tells whether there is a count that means something.
func (r *rate) known(now time.Time) bool {
	if len(r.counts) == 0 {
		return false
	}
	age := now.Sub(r.counts[len(r.counts)-1].at)
	return age >= 0 && age < countsKept
}

func (r *rate) of(now time.Time, total uint64) *uint64 {
	if !r.known(now) || total < r.counts[len(r.counts)-1].total { // at first, or counted anew, or the clock was set
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
