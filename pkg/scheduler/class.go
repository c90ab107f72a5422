// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/scheduling"
)

// maxVerdicts bounds the verdicts kept over all classes.
const maxVerdicts = 1 << 18

// class is what plugins with NodeScope say of nodes for pods that are alike. It
// is brought up to date with what has changed in the cell when it is used.
type class struct {
	filters []scheduling.Filter
	looks   []lookingAround    // those of the filters that are versioned
	reject  *scheduling.Status // of a plugin that rejected the class on all nodes
	scorers []weightedScorer

	judged []uint64 // generation of the node that was judged, by node index
	status []*scheduling.Status
	raw    [][]int64 // raw scores, by scorer and node index
	rank   ranking   // totals of normalized scores
	counts map[*scheduling.Status]int
	fits   int  // how many nodes
	usual  bool // all scorers are normalized in a usual way

	// plans are of pods of one priority, by node index.
	plans        []plan
	planPriority int32

	at   cell.Mark // what the verdicts are of
	used uint64    // when it was used last, for eviction
}

// lookingAround is a filter with the version of which the verdicts are.
type lookingAround struct {
	scheduling.Versioned
	version uint64
}

type weightedScorer struct {
	scheduling.Scorer
	plugin  string
	weight  int64
	norm    scheduling.Normalization // 0: none of the usual
	highest int64                    // raw score of a node that fits, unless norm is AsIs
	version uint64
}

// classes are the classes seen lately.
type classes struct {
	byKey map[string]*class
	turn  uint64
}

// classKey is equal for pods that no NodeScope plugin can tell apart.
func classKey(p *profile.Profile, pod *scheduling.Pod) (string, error) {
	images := make([]string, 0, len(pod.Spec.Containers)+len(pod.Spec.InitContainers))
	for _, cs := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range cs {
			images = append(images, cs[i].Image)
		}
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			images = append(images, image.Reference)
		}
	}
	var affinity *v1.NodeAffinity
	if a := pod.Spec.Affinity; a != nil {
		affinity = a.NodeAffinity
	}
	b, err := json.Marshal([]any{
		p.Name, pod.Spec.NodeName, pod.Spec.NodeSelector, affinity, pod.Spec.Tolerations,
		pod.Requests, pod.NonZero, pod.HostPorts, len(pod.Spec.InitContainers) + len(pod.Spec.Containers), images,
	})
	if err != nil {
		return "", fmt.Errorf("class of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return string(b), nil
}

// get returns the class of a pod, up to date with the view.
func (c *classes) get(v *view, p *profile.Profile, pod *scheduling.Pod, key string) *class {
	k := c.byKey[key]
	if k == nil || k.at.Layout != v.Now().Layout {
		k = compile(v, p, pod)
		c.byKey[key] = k
		c.evict(len(v.Nodes()))
	} else {
		k.follow(v)
	}
	c.turn++
	k.used = c.turn
	return k
}

func compile(v *view, p *profile.Profile, pod *scheduling.Pod) *class {
	nodes := len(v.Nodes())
	k := &class{usual: true, at: v.Now()}
	for _, plugin := range p.NodeFilters {
		f, st := plugin.Compile(v, pod)
		if st != nil {
			k.reject = st
			return k
		}
		if f == nil {
			continue
		}
		k.filters = append(k.filters, f)
		if vs, versioned := f.(scheduling.Versioned); versioned {
			k.looks = append(k.looks, lookingAround{Versioned: vs})
		}
	}
	for _, plugin := range p.NodeScores {
		s := plugin.CompileScore(v, pod)
		if s == nil {
			continue
		}
		w := weightedScorer{Scorer: s, plugin: plugin.Name(), weight: plugin.Weight}
		if u, ok := s.(scheduling.Usual); ok {
			w.norm = u.Normalization()
		}
		k.usual = k.usual && w.norm != 0
		k.scorers = append(k.scorers, w)
		k.raw = append(k.raw, make([]int64, nodes))
	}
	k.judged, k.status = make([]uint64, nodes), make([]*scheduling.Status, nodes)
	k.rank, k.counts = newRanking(nodes), map[*scheduling.Status]int{}
	k.judgeAll(v.Nodes())
	return k
}

// plansOf are what victims says for pods of a priority.
func (k *class) plansOf(priority int32) []plan {
	if k.plans == nil || k.planPriority != priority {
		k.plans, k.planPriority = make([]plan, len(k.judged)), priority
	}
	return k.plans
}

// evict drops the classes not used for longest until the bound holds.
func (c *classes) evict(nodes int) {
	limit := max(maxVerdicts/max(nodes, 1), 8)
	for len(c.byKey) > limit {
		oldest, at := "", ^uint64(0)
		for key, k := range c.byKey {
			if k.used < at && k.used > 0 {
				oldest, at = key, k.used
			}
		}
		delete(c.byKey, oldest)
	}
}

// follow judges the nodes that have changed since it was last called.
func (k *class) follow(v *view) {
	if k.reject != nil {
		return
	}
	changes, ok := v.Since(k.at)
	k.at = v.Now()
	for i := range k.scorers {
		if vs, versioned := k.scorers[i].Scorer.(scheduling.Versioned); versioned && vs.Version() != k.scorers[i].version {
			ok = false
		}
	}
	for i := range k.looks {
		ok = k.looks[i].Version() == k.looks[i].version && ok
	}
	if !ok || len(changes) > len(k.judged) {
		k.judgeAll(v.Nodes())
		return
	}
	moved := false // the highest raw score of a scorer
	for _, c := range changes {
		if n := c.Node; n.Generation != k.judged[n.Index] {
			moved = k.judge(n) || moved
			if k.usual && !moved {
				k.rank.set(n.Index, k.total(n.Index))
			}
		}
	}
	if moved {
		k.rankAll()
	}
}

func (k *class) judgeAll(nodes []*scheduling.Node) {
	clear(k.counts)
	clear(k.status)
	k.fits = len(nodes)
	for i := range k.looks {
		k.looks[i].version = k.looks[i].Version()
	}
	for i := range k.scorers {
		k.scorers[i].highest = 0
		if vs, ok := k.scorers[i].Scorer.(scheduling.Versioned); ok {
			k.scorers[i].version = vs.Version()
		}
	}
	for _, n := range nodes {
		k.judge(n)
	}
	k.rankAll()
}

// rankAll makes all totals anew.
func (k *class) rankAll() {
	if !k.usual {
		return
	}
	for i := range k.scorers {
		s := &k.scorers[i]
		if s.norm == scheduling.AsIs {
			continue
		}
		s.highest = 0
		for n, raw := range k.raw[i] {
			if k.status[n] == nil {
				s.highest = max(s.highest, raw)
			}
		}
	}
	for n := range k.judged {
		k.rank.put(n, k.total(n))
	}
	k.rank.rebuild()
}

// judge takes down what the plugins say of a node. It tells whether the highest
// of the raw scores of any scorer that is normalized by it may have changed.
func (k *class) judge(n *scheduling.Node) (moved bool) {
	k.judged[n.Index] = n.Generation
	before, st := k.status[n.Index], first(k.filters, n)
	k.status[n.Index] = st
	k.count(before, -1)
	k.count(st, 1)
	for i := range k.scorers {
		s := &k.scorers[i]
		old, raw := k.raw[i][n.Index], int64(0)
		if st == nil {
			raw = s.Score(n)
		}
		k.raw[i][n.Index] = raw
		if s.norm != scheduling.AsIs && (raw > s.highest || old == s.highest && raw < old) {
			moved = true
		}
	}
	return moved
}

func (k *class) count(st *scheduling.Status, d int) {
	if st == nil {
		k.fits += d
		return
	}
	if k.counts[st] += d; k.counts[st] == 0 {
		delete(k.counts, st)
	}
}

// total is a node's weighted sum of normalized scores, by the highest raw scores
// of all nodes that fit the class.
func (k *class) total(node int) int64 {
	if k.status[node] != nil {
		return excluded
	}
	var sum int64
	for i := range k.scorers {
		s := &k.scorers[i]
		sum += s.weight * s.norm.Of(k.raw[i][node], s.highest)
	}
	return sum
}

// totals adds up the weighted scores of the nodes of a subset of those that fit.
func (k *class) totals(nodes []int32, scores, out []int64) {
	if k.usual && k.sameHighest(nodes) {
		for i, n := range nodes {
			out[i] = k.rank.total(int(n))
		}
		return
	}
	clear(out)
	for i := range k.scorers {
		s := &k.scorers[i]
		for j, n := range nodes {
			scores[j] = k.raw[i][n]
		}
		s.Normalize(nodes, scores)
		for j := range nodes {
			out[j] += s.weight * scores[j]
		}
	}
}

// sameHighest tells whether the highest raw scores of the nodes are those of all
// nodes that fit.
func (k *class) sameHighest(nodes []int32) bool {
	for i := range k.scorers {
		s := &k.scorers[i]
		if s.norm == scheduling.AsIs || s.highest == 0 {
			continue
		}
		if !slices.ContainsFunc(nodes, func(n int32) bool { return k.raw[i][n] == s.highest }) {
			return false
		}
	}
	return true
}

// first returns the first objection of filters against a node.
func first(filters []scheduling.Filter, n *scheduling.Node) *scheduling.Status {
	for _, f := range filters {
		if st := f.Filter(n); st != nil {
			return st
		}
	}
	return nil
}
