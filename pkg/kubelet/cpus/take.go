// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/utils/cpuset"

	"keelson.dev/keelson/pkg/kubelet/numa"
)

// taker takes free CPUs until it has the needed number.
type taker struct {
	layout  *numa.Layout
	options Options
	// outer and inner return the IDs of a CPU's socket and NUMA node. If a node contains several
	// sockets, outer returns the node and inner the socket.
	outer, inner func(numa.CPU) int

	free   map[int]numa.CPU
	needed int
	taken  []int
}

func newTaker(l *numa.Layout, o Options, free cpuset.CPUSet, needed int) *taker {
	t := &taker{layout: l, options: o, outer: socketOf, inner: nodeOf, free: map[int]numa.CPU{}, needed: needed}
	if l.Count(socketOf) >= l.Count(nodeOf) {
		t.outer, t.inner = nodeOf, socketOf
	}
	for _, c := range l.CPUs {
		if free.Contains(c.ID) {
			t.free[c.ID] = c
		}
	}
	return t
}

func notEnough(needed, free int) error {
	return fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", needed, free)
}

// take chooses the needed number of CPUs from the free CPUs, according to the options.
func take(l *numa.Layout, o Options, free cpuset.CPUSet, needed int) (cpuset.CPUSet, error) {
	if o.AcrossNodes {
		return spread(l, o, free, needed)
	}
	return pack(l, o, free, needed)
}

// pack chooses CPUs that are close to each other. It takes whole sockets and NUMA nodes first,
// then, with the option ByCache, all CPUs of whole caches, then whole cores, and then single
// threads. Among equal candidates, it prefers those with the fewest other free CPUs nearby.
func pack(l *numa.Layout, o Options, free cpuset.CPUSet, needed int) (cpuset.CPUSet, error) {
	t := newTaker(l, o, free, needed)
	if needed > len(t.free) {
		return cpuset.New(), notEnough(needed, len(t.free))
	}
	t.whole(t.outer)
	t.whole(t.inner)
	if o.ByCache {
		t.caches()
	}
	if !o.AcrossCores {
		t.whole(coreOf)
	}
	for _, c := range t.order(o.AcrossCores) {
		t.claim(c)
	}
	return cpuset.New(t.taken...), nil
}

// claim takes a CPU if more CPUs are needed.
func (t *taker) claim(c numa.CPU) {
	if t.needed > 0 {
		t.taken = append(t.taken, c.ID)
		delete(t.free, c.ID)
		t.needed--
	}
}

// whole takes groups of CPUs that are entirely free, as long as a group is not larger than the
// number still needed. f returns the ID of a CPU's group, for example its socket.
func (t *taker) whole(f func(numa.CPU) int) {
	total := counts(t.layout.CPUs, f)
	var groups []int
	members := map[int][]numa.CPU{}
	for _, c := range t.order(false) {
		g := f(c)
		if members[g] == nil {
			groups = append(groups, g)
		}
		members[g] = append(members[g], c)
	}
	for _, g := range groups {
		if n := len(members[g]); n != total[g] || n > t.needed {
			continue
		}
		for _, c := range members[g] {
			t.claim(c)
		}
	}
}

// caches takes all CPUs of whole last-level caches. It takes the remaining CPUs as whole cores from
// one cache that has enough of them.
func (t *taker) caches() {
	t.whole(cacheOf)
	if t.needed == 0 {
		return
	}
	threads := len(t.layout.CPUs) / t.layout.Count(coreOf)
	cores := (t.needed + threads - 1) / threads
	for _, cache := range slices.Sorted(maps.Keys(counts(t.frees(), cacheOf))) {
		behind := slices.DeleteFunc(t.frees(), func(c numa.CPU) bool { return c.Cache != cache })
		full, total := counts(behind, coreOf), counts(t.layout.CPUs, coreOf)
		behind = slices.DeleteFunc(behind, func(c numa.CPU) bool { return full[c.Core] != total[c.Core] })
		slices.SortFunc(behind,
			func(a, b numa.CPU) int { return cmp.Or(cmp.Compare(a.Core, b.Core), cmp.Compare(a.ID, b.ID)) })
		if len(counts(behind, coreOf)) < cores {
			continue
		}
		for _, c := range behind {
			t.claim(c)
		}
		return
	}
}

func (t *taker) frees() []numa.CPU {
	out := make([]numa.CPU, 0, len(t.free))
	for _, c := range t.free {
		out = append(out, c)
	}
	return out
}

// order returns the free CPUs, sorted so that CPUs in groups with fewer free CPUs come first. It
// sorts by outer group, inner group and core. If acrossCores is true, it sorts by outer group and
// the CPU's ID instead.
func (t *taker) order(acrossCores bool) []numa.CPU {
	list := t.frees()
	outer, inner, core := counts(list, t.outer), counts(list, t.inner), counts(list, coreOf)
	slices.SortFunc(list, func(a, b numa.CPU) int {
		if c := cmp.Or(cmp.Compare(outer[t.outer(a)], outer[t.outer(b)]),
			cmp.Compare(t.outer(a), t.outer(b))); c != 0 || acrossCores {
			return cmp.Or(c, cmp.Compare(a.ID, b.ID))
		}
		return cmp.Or(
			cmp.Compare(inner[t.inner(a)], inner[t.inner(b)]), cmp.Compare(t.inner(a), t.inner(b)),
			cmp.Compare(core[a.Core], core[b.Core]), cmp.Compare(a.Core, b.Core), cmp.Compare(a.ID, b.ID),
		)
	})
	return list
}

func counts(list []numa.CPU, f func(numa.CPU) int) map[int]int {
	out := map[int]int{}
	for _, c := range list {
		out[f(c)]++
	}
	return out
}
