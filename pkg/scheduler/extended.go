// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"keelson.dev/keelson/pkg/scheduler/extender"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

// extenderScale is the factor that converts scores of extenders (0 to 10) to scores of plugins (0
// to 100).
const extenderScale = scheduling.MaxNodeScore / extenderv1.MaxExtenderPriority

// interested returns the extenders that must be called for a pod.
func interested(all []*extender.Extender, pod *v1.Pod) []*extender.Extender {
	var out []*extender.Extender
	for _, e := range all {
		if e.Interested(pod) {
			out = append(out, e)
		}
	}
	return out
}

// runExtended runs the queued scheduling work for pods that need extenders, until ctx ends.
func (s *Scheduler) runExtended(ctx context.Context) {
	for {
		some := s.extended.take(ctx, 1)
		if len(some) == 0 {
			return
		}
		some[0]()
	}
}

// scheduleExtended schedules a pod that needs extenders. The calls to extenders run without the
// scheduler's lock, so nodes and pods may change meanwhile. The pod is therefore evaluated again
// after the calls.
func (s *Scheduler) scheduleExtended(ctx context.Context, p *profile.Profile, item *queue.Item,
	exts []*extender.Extender, start time.Time) {
	d, err := s.decideExtended(ctx, p, item, exts)
	s.metrics.algorithm.Observe(s.cfg.Clock.Since(start).Seconds())
	s.conclude(ctx, p, item, d, err, start)
}

func (s *Scheduler) decideExtended(ctx context.Context, p *profile.Profile, item *queue.Item,
	exts []*extender.Extender) (decision, error) {
	candidates, err := s.candidates(p, item)
	if err != nil {
		return decision{}, err
	}
	said, err := ask(ctx, item.Pod, exts, candidates)
	if err != nil {
		return decision{}, err
	}
	s.mu.Lock()
	e, err := s.evaluateItem(p, item)
	if err != nil {
		s.mu.Unlock()
		return decision{}, err
	}
	if n := e.bestOf(said); n != nil {
		defer s.mu.Unlock()
		return s.assume(e, n)
	}
	if err := e.failure(); err != nil {
		s.mu.Unlock()
		return decision{}, err
	}
	e.objectAlso(said)
	d := decision{events: e.events() | scheduling.PodRemoved | scheduling.NodeAdded, objected: e.objections(),
		reject: e.reject}
	var found []candidate
	why := ""
	if !d.silent() {
		why = e.deallocate(&d)
		if p.Preemption != nil {
			var none string
			found, none = s.found(e)
			found = slices.Clone(found) // the evaluation's buffer is reused for other pods after the unlock
			why = joinReasons(why, none)
		}
	}
	s.mu.Unlock()
	if found, err = preemptAlso(ctx, item.Pod, exts, found); err != nil {
		return decision{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(found) > 0 {
		s.clear((&scheduling.Pod{Pod: item.Pod}).Priority(), slices.MinFunc(found, compareCandidates), &d)
		why = victimsMessage(&d)
	}
	d.message = fitMessage(len(s.view.Nodes()), d.reject, d.objected, why)
	s.park(item, &d)
	s.wakeDisplaced(&d)
	return d, nil
}

// candidates returns the nodes that the pod fits according to all plugins.
func (s *Scheduler) candidates(p *profile.Profile, item *queue.Item) ([]*v1.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.evaluateItem(p, item)
	if err != nil {
		return nil, err
	}
	if e.reject == nil && e.statuses == nil {
		e.filterAll()
	}
	if e.reject != nil {
		return nil, e.failure()
	}
	var out []*v1.Node
	for _, i := range e.feasible() {
		out = append(out, e.view.Nodes()[i].Node)
	}
	return out, nil
}

// opinion is the combined response of all extenders about the nodes for a pod.
type opinion struct {
	allowed  map[string]bool
	scores   map[string]int64 // sums of the extenders' weighted scores, by node
	statuses map[string]*scheduling.Status
}

// ask calls the filters of extenders one after the other, each with the nodes that are left, and
// then asks all extenders for scores of the remaining nodes.
func ask(ctx context.Context, pod *v1.Pod, exts []*extender.Extender, nodes []*v1.Node) (opinion, error) {
	o := opinion{allowed: map[string]bool{}, scores: map[string]int64{}, statuses: map[string]*scheduling.Status{}}
	for _, ext := range exts {
		if len(nodes) == 0 {
			break
		}
		filtered, err := ext.Filter(ctx, pod, nodes)
		if err != nil {
			if ext.Ignorable() {
				continue
			}
			return o, fmt.Errorf("filter: %w", err)
		}
		o.note(ext, filtered.Failed, scheduling.Unschedulable)
		o.note(ext, filtered.Unresolvable, scheduling.Unresolvable)
		nodes = filtered.Nodes
	}
	for _, n := range nodes {
		o.allowed[n.Name] = true
	}
	for _, ext := range exts {
		scores, err := ext.Prioritize(ctx, pod, nodes)
		if err != nil {
			continue // as in Kubernetes, an extender's failure to score is ignored
		}
		for name, score := range scores {
			o.scores[name] += score * ext.Weight() * extenderScale
		}
	}
	return o, nil
}

func (o *opinion) note(ext *extender.Extender, failed map[string]string, code scheduling.Code) {
	for name, reason := range failed {
		o.statuses[name] = &scheduling.Status{Code: code, Plugin: ext.Name(), Reasons: []string{reason}}
	}
}

// bestOf returns the node with the best total score among the nodes that extenders allow and that
// the pod still fits.
func (e *evaluation) bestOf(o opinion) *scheduling.Node {
	if e.reject == nil && e.statuses == nil {
		e.filterAll()
	}
	if e.reject != nil {
		return nil
	}
	nodes := e.view.Nodes()
	feasible := e.feasible()
	if len(feasible) == 0 {
		return nil
	}
	var best *scheduling.Node
	var most int64
	for i, total := range e.totals(feasible) {
		n := nodes[feasible[i]]
		total += o.scores[n.Name]
		if o.allowed[n.Name] && (best == nil || total > most) {
			best, most = n, total
		}
	}
	return best
}

// objectAlso adds the extenders' rejections of nodes to e.statuses.
func (e *evaluation) objectAlso(o opinion) {
	if e.reject != nil {
		return
	}
	e.narrow()
	for i, n := range e.view.Nodes() {
		if e.statuses[i] == nil {
			e.statuses[i] = o.statuses[n.Name]
		}
	}
}

// preemptAlso sends the candidate nodes for preemption, with their victims, to the extenders. Each
// extender may drop candidates and victims.
func preemptAlso(ctx context.Context, pod *v1.Pod, exts []*extender.Extender, found []candidate) ([]candidate, error) {
	for _, ext := range exts {
		if !ext.Preempts() || len(found) == 0 {
			continue
		}
		victims := map[string]*extenderv1.Victims{}
		byNode := map[string]candidate{}
		for _, c := range found {
			v := &extenderv1.Victims{NumPDBViolations: int64(c.violations)}
			for _, p := range c.victims {
				v.Pods = append(v.Pods, p.Pod)
			}
			victims[c.node], byNode[c.node] = v, c
		}
		answer, err := ext.Preempt(ctx, pod, victims)
		if err == nil {
			var left []candidate
			if left, err = chosen(ext, byNode, answer); err == nil {
				found = left
			}
		}
		if err != nil && !ext.Ignorable() {
			return nil, fmt.Errorf("preempt: %w", err)
		}
	}
	return found, nil
}

// chosen converts an extender's response about preemption to candidates. The extender may leave out
// nodes and victims. A node or victim that was not sent to it is an error.
func chosen(ext *extender.Extender, byNode map[string]candidate, answer map[string]*extenderv1.MetaVictims) (
	[]candidate, error) {
	var out []candidate
	for _, node := range slices.Sorted(maps.Keys(answer)) {
		meta := answer[node]
		c, known := byNode[node]
		if !known || meta == nil {
			return nil, fmt.Errorf("extender %q claims node %q, which it was not asked about", ext.Name(), node)
		}
		kept := candidate{node: node, violations: int(meta.NumPDBViolations)}
		for _, v := range c.victims {
			if slices.ContainsFunc(meta.Pods, func(m *extenderv1.MetaPod) bool { return m != nil && m.UID == string(v.UID) }) {
				kept.victims = append(kept.victims, v)
			}
		}
		if len(meta.Pods) == 0 {
			if ext.Ignorable() {
				continue // as in Kubernetes, a candidate without victims of an ignorable extender is dropped
			}
			return nil, fmt.Errorf("extender %q names no victim on node %q", ext.Name(), node)
		}
		if len(kept.victims) != len(meta.Pods) {
			return nil, fmt.Errorf("extender %q claims to preempt pods on node %q that it was not asked about", ext.Name(), node)
		}
		out = append(out, kept)
	}
	slices.SortFunc(out, func(a, b candidate) int { return cmp.Compare(a.node, b.node) })
	return out, nil
}

// binderOf returns the extender that binds a pod, or nil if the scheduler binds it.
func binderOf(all []*extender.Extender, pod *v1.Pod) *extender.Extender {
	for _, e := range all {
		if e.Binds() && e.Interested(pod) {
			return e
		}
	}
	return nil
}
