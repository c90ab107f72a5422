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

// maxVerdicts limits the cache of classes of pods (pods that are evaluated alike, see classKey). It
// is the number of cached results: one for each node and class.
const maxVerdicts = 1 << 18

// class has the results of the plugins with NodeScope (results that depend on one node only) for a
// class of pods: all pods with the same class key, which are evaluated alike. Before each use,
// follow updates the results for nodes that have changed.
type class struct {
	meter   *meter
	filters []scheduling.Filter
	// filterMeters and scoreMeters have the meters of filters and scorers. ended[i] counts the
	// nodes that filter i rejected since the last call of tally; the last element counts the nodes
	// that all filters accepted.
	filterMeters, scoreMeters []*pluginMeter
	ended                     []uint64
	versions                  []filterVersion    // versions of the filters that have a Version function
	reject                    *scheduling.Status // status from a plugin that rejected the class on all nodes
	scorers                   []weightedScorer

	evaluated []uint64 // generation of the node when it was evaluated, by node index
	status    []*scheduling.Status
	raw       [][]int64 // raw scores (before normalization), by scorer and node index
	rank      ranking   // totals of the normalized scores, to find the best node
	counts    map[*scheduling.Status]int
	fits      int  // number of nodes that all filters accept
	usual     bool // all scorers use one of the standard Normalizations

	// plans has cached results of preemption (the victims or the reason why there are none), by
	// node index, for pods with the priority planPriority.
	plans        []plan
	planPriority int32

	at   cell.Mark // position in the cell's list of changes up to which the results are current
	used uint64    // classes.turn at the last use; the class with the lowest value is evicted first
}

// filterVersion is the version function of a filter, with the version that the stored results were
// computed for.
type filterVersion struct {
	version func() uint64
	at      uint64
}

type weightedScorer struct {
	scheduling.Scorer
	plugin  string
	weight  int64
	highest int64  // highest raw score of all nodes that fit; unused if Normalization is AsIs
	at      uint64 // result of Version when the scores were computed
}

// score returns the scorer's raw score of a node.
func (s *weightedScorer) score(n *scheduling.Node) int64 {
	if s.ScoreAt != nil {
		return s.ScoreAt(n.Index)
	}
	return s.Score(n)
}

// normalize maps raw scores of nodes to 0..MaxNodeScore, in place.
func (s *weightedScorer) normalize(nodes []int32, scores []int64) {
	if s.Normalize != nil {
		s.Normalize(nodes, scores)
		return
	}
	s.Normalization.Apply(scores)
}

// changed reports whether the scorer's version differs from the version that the stored scores were
// computed for.
func (s *weightedScorer) changed() bool { return s.Version != nil && s.Version() != s.at }

// classes caches the classes of pods (pods that are evaluated alike) that were used recently.
type classes struct {
	byKey map[string]*class
	turn  uint64
	meter *meter
}

// classKey returns the key of a pod's class (the pods that are evaluated alike). For two pods with
// the same key, a plugin gives the same results on a node if it looks at this node only, which it
// says by its scope (NodeScope).
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

// get returns the class of pods with a class key (see classKey). It creates or updates the class,
// so that its results match the nodes in the view.
func (c *classes) get(v *view, p *profile.Profile, pod *scheduling.Pod, key string) *class {
	k := c.byKey[key]
	if k == nil || k.at.Layout != v.Now().Layout {
		k = c.compile(v, p, pod)
		c.byKey[key] = k
		c.evict(len(v.Nodes()))
	} else {
		k.follow(v)
	}
	c.turn++
	k.used = c.turn
	return k
}

func (c *classes) compile(v *view, p *profile.Profile, pod *scheduling.Pod) *class {
	nodes := len(v.Nodes())
	k, by := &class{usual: true, at: v.Now(), meter: c.meter}, c.meter.of(p)
	for i := range p.NodeFilters {
		f, st := c.meter.compileFilter(by.nodeFilters[i], &p.NodeFilters[i], v, pod)
		if st != nil {
			k.reject = st
			return k
		}
		if empty(&f.Filter) {
			continue
		}
		k.filters, k.filterMeters = append(k.filters, f.Filter), append(k.filterMeters, by.nodeFilters[i])
		if f.Version != nil {
			k.versions = append(k.versions, filterVersion{version: f.Version})
		}
	}
	k.ended = make([]uint64, len(k.filters)+1)
	for i := range p.NodeScores {
		s, ok := c.meter.compileScorer(by.nodeScores[i], &p.NodeScores[i], v, pod)
		if !ok {
			continue
		}
		k.usual = k.usual && s.Normalize == nil
		k.scorers, k.scoreMeters = append(k.scorers, s), append(k.scoreMeters, by.nodeScores[i])
		k.raw = append(k.raw, make([]int64, nodes))
	}
	k.evaluated, k.status = make([]uint64, nodes), make([]*scheduling.Status, nodes)
	k.rank, k.counts = newRanking(nodes), map[*scheduling.Status]int{}
	k.evaluateAll(v.Nodes())
	return k
}

// plansOf returns the preemption plans for pods of a priority, by node index. Only the plans of one
// priority are kept.
func (k *class) plansOf(priority int32) []plan {
	if k.plans == nil || k.planPriority != priority {
		k.plans, k.planPriority = make([]plan, len(k.evaluated)), priority
	}
	return k.plans
}

// evict drops the least recently used classes of pods until their number is within the limit.
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

// follow updates the results for the nodes that have changed since the last call.
func (k *class) follow(v *view) {
	if k.reject != nil {
		return
	}
	changes, ok := v.Since(k.at)
	k.at = v.Now()
	for i := range k.scorers {
		ok = ok && !k.scorers[i].changed()
	}
	for i := range k.versions {
		ok = ok && k.versions[i].version() == k.versions[i].at
	}
	if !ok || len(changes) > len(k.evaluated) {
		k.evaluateAll(v.Nodes())
		return
	}
	if len(changes) == 0 {
		return
	}
	moved := false // whether the highest raw score of a scorer may have changed
	for _, c := range changes {
		if n := c.Node; n.Generation != k.evaluated[n.Index] {
			moved = k.evaluateNode(n) || moved
			if k.usual && !moved {
				k.rank.set(n.Index, k.total(n.Index))
			}
		}
	}
	k.tally()
	if moved {
		k.rankAll()
	}
}

func (k *class) evaluateAll(nodes []*scheduling.Node) {
	clear(k.counts)
	clear(k.status)
	k.fits = len(nodes)
	for i := range k.versions {
		k.versions[i].at = k.versions[i].version()
	}
	for i := range k.scorers {
		k.scorers[i].highest = 0
		if version := k.scorers[i].Version; version != nil {
			k.scorers[i].at = version()
		}
	}
	for _, n := range nodes {
		k.evaluateNode(n)
	}
	k.tally()
	k.rankAll()
}

// first returns the status of the first filter that rejects the node, or nil if all filters accept
// it.
func (k *class) first(n *scheduling.Node) *scheduling.Status {
	if k.meter.timed() {
		at, st := k.meter.first(k.filters, k.filterMeters, n)
		k.ended[at]++
		return st
	}
	for i := range k.filters {
		if st := check(&k.filters[i], n); st != nil {
			k.ended[i]++
			return st
		}
	}
	k.ended[len(k.filters)]++
	return nil
}

// score returns the raw score that the scorer with the given index gives a node, and times the call
// if that is due.
func (k *class) score(scorer int, n *scheduling.Node) int64 {
	if !k.meter.timed() {
		return k.scorers[scorer].score(n)
	}
	k.meter.left--
	start := k.meter.clock.Now()
	raw := k.scorers[scorer].score(n)
	k.scoreMeters[scorer].times.observe(score, 0, k.meter.clock.Since(start))
	return raw
}

// tally adds the numbers of calls to the metrics of the filter and score plugins. They follow from
// k.ended, which has the number of nodes that each filter rejected: a filter was called for every
// node that no earlier filter had rejected.
func (k *class) tally() {
	last := len(k.filters)
	n := k.ended[last]
	for _, m := range k.scoreMeters {
		m.calls[score] += n
	}
	for i := last - 1; i >= 0; i-- {
		n += k.ended[i]
		k.filterMeters[i].calls[filter] += n
	}
	clear(k.ended)
}

// rankAll computes the totals of all nodes again, after the highest raw score of a scorer may have
// changed.
func (k *class) rankAll() {
	if !k.usual {
		return
	}
	for i := range k.scorers {
		s := &k.scorers[i]
		if s.Normalization == scheduling.AsIs {
			continue
		}
		s.highest = 0
		for n, raw := range k.raw[i] {
			if k.status[n] == nil {
				s.highest = max(s.highest, raw)
			}
		}
	}
	for n := range k.evaluated {
		k.rank.put(n, k.total(n))
	}
	k.rank.rebuild()
}

// evaluateNode stores the results for one node. moved is true if the highest raw score of a scorer
// may have changed, and that scorer's normalization depends on it.
func (k *class) evaluateNode(n *scheduling.Node) (moved bool) {
	k.evaluated[n.Index] = n.Generation
	before, st := k.status[n.Index], k.first(n)
	k.status[n.Index] = st
	k.count(before, -1)
	k.count(st, 1)
	for i := range k.scorers {
		s := &k.scorers[i]
		old, raw := k.raw[i][n.Index], int64(0)
		if st == nil {
			raw = k.score(i, n)
		}
		k.raw[i][n.Index] = raw
		if s.Normalization != scheduling.AsIs && (raw > s.highest || old == s.highest && raw < old) {
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

// total returns the weighted sum of a node's scores, each normalized by the highest raw score among
// all nodes that fit.
func (k *class) total(node int) int64 {
	if k.status[node] != nil {
		return excluded
	}
	var sum int64
	for i := range k.scorers {
		s := &k.scorers[i]
		sum += s.weight * s.Normalization.Of(k.raw[i][node], s.highest)
	}
	return sum
}

// totals computes the weighted sums of scores for the given nodes, a subset of the nodes that the
// pods of the class fit. They are normalized by the highest raw scores among the given nodes.
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
		s.normalize(nodes, scores)
		for j := range nodes {
			out[j] += s.weight * scores[j]
		}
	}
}

// sameHighest reports whether, for every scorer, the given nodes include a node with the highest
// raw score of all nodes that the pods of the class fit.
func (k *class) sameHighest(nodes []int32) bool {
	for i := range k.scorers {
		s := &k.scorers[i]
		if s.Normalization == scheduling.AsIs || s.highest == 0 {
			continue
		}
		if !slices.ContainsFunc(nodes, func(n int32) bool { return k.raw[i][n] == s.highest }) {
			return false
		}
	}
	return true
}

// first returns the status of the first filter that rejects the node, or nil if all filters accept
// it.
func first(filters []scheduling.Filter, n *scheduling.Node) *scheduling.Status {
	for i := range filters {
		if st := check(&filters[i], n); st != nil {
			return st
		}
	}
	return nil
}

// check returns the status with which a filter rejects a node, or nil if the filter accepts it.
func check(f *scheduling.Filter, n *scheduling.Node) *scheduling.Status {
	if f.CheckAt != nil {
		return f.CheckAt(n.Index)
	}
	return f.Check(n)
}

// empty reports whether a filter has no check function, which means that it accepts every node.
func empty(f *scheduling.Filter) bool { return f.Check == nil && f.CheckAt == nil }
