// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/scheduler/plugins/dynamicresources"
	"keelson.dev/keelson/pkg/scheduler/plugins/volumebinding"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/scheduling"
)

// evaluator filters and scores nodes for one pod at a time. It caches results for other pods of the
// same class (pods that are evaluated alike, see classKey).
type evaluator struct {
	classes classes
	buffers buffers
	meter   *meter
}

// buffers has slices that every evaluation reuses, to save allocations.
type buffers struct {
	statuses       []*scheduling.Status
	feasible       []int32
	scores, totals []int64
	// Meters of the plugins with CellScope (plugins whose results depend on several nodes).
	cellMeters, scorerMeters []*pluginMeter

	// For preemption: why eviction does not help, by node index; the nodes to search for victims;
	// and the nodes where evictions let the pod fit.
	unhelpful []*scheduling.Status
	potential []*scheduling.Node
	found     []candidate
}

func newEvaluator() *evaluator {
	m := newMeter(nil, nil)
	return &evaluator{classes: classes{byKey: map[string]*class{}, meter: m}, meter: m}
}

// measure lets the evaluator count and time plugin calls, and report them to m.
func (ev *evaluator) measure(c clock.Clock, m *metrics) {
	ev.meter = newMeter(c, m)
	ev.classes.meter = ev.meter
}

// evaluation is the result of filtering and scoring nodes for one pod. It uses the evaluator's
// buffers, so it is valid only until the next evaluation.
type evaluation struct {
	view    *view
	profile *profile.Profile
	pod     *scheduling.Pod
	class   *class
	cell    []scheduling.Filter      // filters with CellScope, compiled for this pod
	volumes *volumebinding.Filter    // the filter in cell that plans volumes, or nil
	devices *dynamicresources.Filter // the filter in cell that plans devices, or nil
	scorers []weightedScorer         // scorers with CellScope, compiled for this pod
	buffers *buffers

	meter        *meter
	by           *profileMeter
	cellMeters   []*pluginMeter // meters of the filters in cell
	scorerMeters []*pluginMeter // meters of scorers
	compiled     bool           // compileScorers has been called
	took         struct{ preFilter, filter time.Duration }

	nominated *nominations
	// rank is a priority. Preemption for this pod may evict only pods of lower priority.
	rank int32

	// reject is set if a plugin rejected the pod on all nodes, or could not evaluate a node.
	reject *scheduling.Status
	// statuses has the status with which a plugin rejected each node, by node index, or nil where
	// the pod fits. The slice itself is nil if a plugin rejected the pod before any node was evaluated,
	// and if only the nominated node was evaluated, because the pod fits there.
	statuses []*scheduling.Status
	// narrowed is true if statuses is a copy that may reject more nodes than the statuses that all
	// pods of the class share.
	narrowed bool
	// only is the nominated node if the pod fits there. The other nodes were not evaluated in that
	// case.
	only *scheduling.Node
}

func (ev *evaluator) evaluate(v *view, p *profile.Profile, pod *scheduling.Pod, noms *nominations) (*evaluation,
	error) {
	key, err := classKey(p, pod)
	if err != nil {
		return nil, err
	}
	return ev.evaluateAs(v, p, pod, key, noms), nil
}

// evaluateAs evaluates a pod. The argument class is the pod's class key (see classKey), which the
// caller has already computed.
func (ev *evaluator) evaluateAs(v *view, p *profile.Profile, pod *scheduling.Pod, class string,
	noms *nominations) *evaluation {
	e := ev.begin(v, p, pod, class, noms)
	e.by.points.observe(preFilter, codeOf(e.reject), e.took.preFilter)
	if e.reject != nil {
		return e
	}
	if !e.nominatedNodeFits() {
		e.filterAll()
	}
	e.by.points.observe(filter, codeOf(e.reject), e.took.filter+e.meter.lap())
	return e
}

// begin compiles the filters for a pod. Afterwards the method filter can evaluate single nodes.
func (ev *evaluator) begin(v *view, p *profile.Profile, pod *scheduling.Pod, class string,
	noms *nominations) *evaluation {
	e := &evaluation{view: v, profile: p, pod: pod, nominated: noms, rank: pod.Priority(), buffers: &ev.buffers,
		meter: ev.meter, by: ev.meter.of(p), cellMeters: ev.buffers.cellMeters[:0],
		scorerMeters: ev.buffers.scorerMeters[:0]}
	ev.meter.begin()
	e.class = ev.classes.get(v, p, pod, class)
	e.took.filter = ev.meter.lap() // most of this time was spent in filters with NodeScope
	if e.reject = e.class.reject; e.reject != nil {
		e.took.preFilter = e.took.filter
		return e
	}
	defer func() { ev.buffers.cellMeters, e.took.preFilter = e.cellMeters, ev.meter.lap() }()
	for i := range p.CellFilters {
		f, st := ev.meter.compileFilter(e.by.cellFilters[i], &p.CellFilters[i], v, pod)
		if st != nil {
			e.reject = st
			return e
		}
		if empty(&f.Filter) {
			continue
		}
		e.cell, e.cellMeters = append(e.cell, f.Filter), append(e.cellMeters, e.by.cellFilters[i])
		if f.Volumes != nil {
			e.volumes = f.Volumes
		}
		if f.Devices != nil {
			e.devices = f.Devices
		}
	}
	return e
}

// fits reports whether the pod fits a node. It returns false if n is nil.
func (e *evaluation) fits(n *scheduling.Node) bool {
	return e.reject == nil && n != nil && e.filter(n) == nil
}

// nominatedNodeFits evaluates the pod's nominated node before all others. It reports whether the
// pod fits there.
func (e *evaluation) nominatedNodeFits() bool {
	name := e.pod.Status.NominatedNodeName
	if name == "" {
		return false
	}
	n := e.view.NodeByName(name)
	if n == nil || e.filter(n) != nil {
		return false
	}
	e.only = n
	return true
}

func (e *evaluation) filterAll() {
	e.statuses = e.class.status
	if len(e.cell) > 0 {
		e.narrow()
		for i := range e.cell {
			if e.reject = e.rejectMore(i); e.reject != nil {
				return
			}
		}
	}
	if e.class.fits == 0 {
		return // no node fits, so leaveRoom has none to reject
	}
	e.reject = e.leaveRoom()
}

// leaveRoom rejects the nodes on which the pod fits only without the pods that are nominated to
// them. If a plugin fails to evaluate a node, leaveRoom returns that plugin's status.
func (e *evaluation) leaveRoom() *scheduling.Status {
	if e.class.fits < len(e.nominated.byNode) {
		// Fewer nodes fit than have nominated pods, so it is cheaper to go through the nodes.
		for i, n := range e.view.Nodes() {
			if e.statuses[i] == nil && e.nominated.byNode[n.Name] != nil {
				if st := e.leaveRoomOn(n); st != nil {
					return st
				}
			}
		}
		return nil
	}
	for name := range e.nominated.byNode {
		if n := e.view.NodeByName(name); n != nil && e.statuses[n.Index] == nil {
			if st := e.leaveRoomOn(n); st != nil {
				return st
			}
		}
	}
	return nil
}

func (e *evaluation) leaveRoomOn(n *scheduling.Node) *scheduling.Status {
	st := e.withNominated(n)
	if st == nil || st.Code == scheduling.Failed {
		return st
	}
	e.narrow()
	e.statuses[n.Index] = st
	return nil
}

// failure returns an error, worded as in Kubernetes, if a plugin failed to evaluate the pod, and
// otherwise nil.
func (e *evaluation) failure() error {
	if e.reject == nil || e.reject.Code != scheduling.Failed {
		return nil
	}
	during := "running %q filter plugin: %s"
	if e.statuses == nil {
		during = "running PreFilter plugin %q: %s"
	}
	return fmt.Errorf(during, e.reject.Plugin, strings.Join(e.reject.Reasons, ", "))
}

// narrow copies statuses before its first change, because the slice is shared with other pods of
// the same class (pods that are evaluated alike).
func (e *evaluation) narrow() {
	if e.narrowed {
		return
	}
	e.narrowed = true
	b := &e.buffers.statuses
	*b = append((*b)[:0], e.statuses...)
	e.statuses = *b
}

// rejectMore calls the filter with the given index in e.cell for the nodes that are not rejected
// yet. If the filter fails to evaluate a node, rejectMore returns the filter's status.
func (e *evaluation) rejectMore(at int) *scheduling.Status {
	from, st := e.rejectTimed(at)
	if st != nil {
		return st
	}
	f, nodes, statuses, calls := &e.cell[at], e.view.Nodes(), e.statuses, &e.cellMeters[at].calls[filter]
	if f.CheckAt != nil {
		for i := from; i < len(statuses); i++ {
			if statuses[i] == nil {
				*calls++
				statuses[i] = f.CheckAt(i)
			}
		}
		return nil
	}
	for i := from; i < len(statuses); i++ {
		if statuses[i] != nil {
			continue
		}
		*calls++
		st := f.Check(nodes[i])
		if st != nil && st.Code == scheduling.Failed {
			return st
		}
		statuses[i] = st
	}
	return nil
}

// rejectTimed does the same as rejectMore and times each call, until the limit of timed calls is
// reached. It returns the index of the first node that it did not evaluate.
func (e *evaluation) rejectTimed(at int) (left int, failed *scheduling.Status) {
	for i, st := range e.statuses {
		switch {
		case !e.meter.timed():
			return i, nil
		case st != nil:
			continue
		}
		e.cellMeters[at].calls[filter]++
		_, st = e.meter.first(e.cell[at:at+1], e.cellMeters[at:at+1], e.view.Nodes()[i])
		if st != nil && st.Code == scheduling.Failed {
			return i, st
		}
		e.statuses[i] = st
	}
	return len(e.statuses), nil
}

// filter returns the status with which a plugin rejects the node, or nil if the pod fits.
func (e *evaluation) filter(n *scheduling.Node) *scheduling.Status {
	if st := e.class.status[n.Index]; st != nil {
		return st
	}
	if st := first(e.cell, n); st != nil {
		return st
	}
	return e.withNominated(n)
}

// withNominated evaluates the node again, as if the pods that are nominated to it were already
// there. It considers nominated pods of the same or higher priority. Such pods may or may not
// arrive, so the pod must fit in either case; the caller has checked that it fits without them.
func (e *evaluation) withNominated(n *scheduling.Node) *scheduling.Status {
	expected := e.nominated.on(n.Name, e.pod)
	if len(expected) == 0 {
		return nil
	}
	t := e.trial(n)
	defer t.end()
	for _, p := range expected {
		t.adjust(p, 1)
	}
	return t.fits()
}

// best returns the feasible node with the highest score, or nil. If several nodes have this score,
// it picks one of them at random.
func (e *evaluation) best(r *rand.Rand) *scheduling.Node {
	switch {
	case e.reject != nil:
		return nil
	case e.only != nil:
		return e.only
	}
	e.compileScorers()
	compiling := e.meter.lap()
	n, several := e.pick(r)
	if several {
		e.by.points.observe(preScore, 0, compiling)
		e.by.points.observe(score, 0, e.meter.lap())
	}
	return n
}

// pick chooses the node for best if more than the nominated node was evaluated. several is true if
// the pod fits more than one node.
func (e *evaluation) pick(r *rand.Rand) (n *scheduling.Node, several bool) {
	nodes := e.view.Nodes()
	if !e.narrowed && len(e.scorers) == 0 && e.class.usual {
		if i := e.class.rank.best(r); i >= 0 {
			return nodes[i], e.class.fits > 1
		}
		return nil, false
	}
	feasible := e.feasible()
	switch len(feasible) {
	case 0:
		return nil, false
	case 1:
		return nodes[feasible[0]], false
	}
	totals := e.totals(feasible)
	best, ties := 0, 1
	for i := 1; i < len(totals); i++ {
		switch {
		case totals[i] > totals[best]:
			best, ties = i, 1
		case totals[i] == totals[best]:
			if ties++; r.IntN(ties) == 0 {
				best = i
			}
		}
	}
	return nodes[feasible[best]], true
}

// feasible returns the indexes of the nodes that the pod fits.
func (e *evaluation) feasible() []int32 {
	out := e.buffers.feasible[:0]
	for i, st := range e.statuses {
		if st == nil {
			out = append(out, int32(i)) // the conversion is safe, because there are fewer than 2^31 nodes
		}
	}
	e.buffers.feasible = out
	return out
}

func (e *evaluation) compileScorers() {
	if e.compiled {
		return
	}
	e.compiled = true
	for i := range e.profile.CellScores {
		if s, ok := e.meter.compileScorer(e.by.cellScores[i], &e.profile.CellScores[i], e.view, e.pod); ok {
			e.scorers, e.scorerMeters = append(e.scorers, s), append(e.scorerMeters, e.by.cellScores[i])
		}
	}
	e.buffers.scorerMeters = e.scorerMeters
}

// totals returns the weighted sums of the normalized scores of the feasible nodes.
func (e *evaluation) totals(feasible []int32) []int64 {
	e.compileScorers()
	b := e.buffers
	if cap(b.scores) < len(feasible) {
		b.scores, b.totals = make([]int64, len(e.view.Nodes())), make([]int64, len(e.view.Nodes()))
	}
	totals, scores := b.totals[:len(feasible)], b.scores[:len(feasible)]
	e.class.totals(feasible, scores, totals)
	for i := range e.scorers {
		s := &e.scorers[i]
		e.scoreCell(s, feasible, scores)
		e.scorerMeters[i].calls[score] += uint64(len(feasible))
		for j := range totals {
			totals[j] += s.weight * scores[j]
		}
	}
	return totals
}

// scoreCell computes the normalized scores of a scorer with CellScope.
func (e *evaluation) scoreCell(s *weightedScorer, feasible []int32, scores []int64) {
	if s.Prepare != nil {
		s.Prepare(feasible)
	}
	if s.ScoreAt != nil {
		for j, i := range feasible {
			scores[j] = s.ScoreAt(int(i))
		}
	} else {
		nodes := e.view.Nodes()
		for j, i := range feasible {
			scores[j] = s.Score(nodes[i])
		}
	}
	s.normalize(feasible, scores)
}
