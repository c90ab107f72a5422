// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/daemon/podtrace"
	"keelson.dev/keelson/pkg/scheduler/cell"
	"keelson.dev/keelson/pkg/scheduler/plugins/dynamicresources"
	"keelson.dev/keelson/pkg/scheduler/profile"
	"keelson.dev/keelson/pkg/scheduler/queue"
	"keelson.dev/scheduling"
)

const (
	// flushPeriod is the interval at which the scheduler looks for pods that have waited too long
	// in the queue, and retries them.
	flushPeriod = 30 * time.Second
)

// Config is the configuration of a scheduler with its dependencies.
type Config struct {
	Client   kubernetes.Interface
	Profiles *profile.Set
	Clock    clock.Clock
	Rand     *rand.Rand // used only while Scheduler.mu is held
	Log      *slog.Logger
	Metrics  prometheus.Registerer
	// Traces adds scheduling spans to the traces of pods. It may be nil.
	Traces *podtrace.Tracer
	// Identity names this scheduler in events. If it is empty, the host's name is used.
	Identity string
	// PodGroups makes the scheduler place pods as their PodGroups require. The API server must serve
	// PodGroups.
	PodGroups bool
	// NoDeviceTaintRules makes the scheduler ignore DeviceTaintRules, for API servers that do not serve
	// them.
	NoDeviceTaintRules bool
}

// Scheduler schedules the pods of its profiles.
type Scheduler struct {
	cfg     Config
	sources *sources
	queue   *queue.Queue
	metrics *metrics
	events  recorders

	batches      *batches
	binder       *binder
	verdicts     *mailbox[*verdict]
	groupReports *mailbox[*groupReport]
	extended     *mailbox[func()] // scheduling of pods that need extenders
	devicesMoved signal           // raised when resource claims, device classes or slices change
	volumesMoved signal           // raised when volumes, claims or classes change, or nodes or pods are deleted
	running      sync.WaitGroup
	hold         time.Duration // maxHold, except in tests

	mu        sync.Mutex // guards the fields below
	view      *view
	evaluator *evaluator
	kinds     kinds
	nominated *nominations
	gangs     *gangs
}

// New returns a scheduler. The scheduler sends no requests before Follow is called.
func New(cfg Config) (*Scheduler, error) {
	if cfg.Profiles.Less == nil {
		return nil, errors.New("no queue sort plugin is enabled")
	}
	sources, err := newSources(cfg)
	if err != nil {
		return nil, err
	}
	b := newBatches(cfg.Client, cfg.Identity)
	s := &Scheduler{
		cfg: cfg, sources: sources,
		hold: maxHold, evaluator: newEvaluator(), kinds: kinds{}, nominated: newNominations(),
		gangs: newGangs(sources.groups()), volumesMoved: newSignal(), devicesMoved: newSignal(),
		batches: b, binder: newBinder(cfg.Client, b), verdicts: newMailbox[*verdict](), extended: newMailbox[func()](),
		groupReports: newMailbox[*groupReport](),
	}
	s.view = &view{Cell: cell.New(), keeper: newKeeper(), sources: s.sources, devices: s.sources.devices,
		reserved: newReservations(), evicting: newEvictions(), gangs: s.gangs}
	s.view.nominated, s.nominated.changed = s.nominated, s.view.Touch
	s.queue = queue.New(queue.Config{
		Clock: cfg.Clock, Less: cfg.Profiles.Less, Gate: s.gate, Gang: s.gangs.key,
		InitialBackoff: cfg.Profiles.InitialBackoff, MaxBackoff: cfg.Profiles.MaxBackoff,
	})
	if s.metrics, err = newMetrics(cfg.Metrics, s); err != nil {
		return nil, err
	}
	s.evaluator.measure(cfg.Clock, s.metrics)
	s.binder.clock, s.binder.metrics = cfg.Clock, s.metrics
	return s, s.sources.follow(s.handlers())
}

// Follow fills the caches and keeps them up to date until ctx ends. It returns once the caches are
// filled. A scheduler that is not the leader also calls it, so that it can take over quickly.
func (s *Scheduler) Follow(ctx context.Context) error {
	if err := s.sources.run(ctx); err != nil {
		return fmt.Errorf("follow the API server: %w", err)
	}
	return nil
}

// Run schedules pods until ctx ends, and then waits for its goroutines. Follow must have returned.
func (s *Scheduler) Run(ctx context.Context) error {
	s.events = newRecorders(ctx, s.cfg.Client, s.cfg.Profiles)
	defer s.running.Wait()
	defer s.events.shutdown()
	s.running.Go(func() { s.flush(ctx) })
	s.running.Go(func() { s.binder.run(ctx) })
	s.running.Go(func() { s.runExtended(ctx) })
	for range reporters {
		s.running.Go(func() { s.runVerdicts(ctx) })
	}
	if s.cfg.PodGroups {
		s.running.Go(func() { s.runGroupReports(ctx) })
	}
	for {
		item, err := s.queue.Pop(ctx)
		if err != nil {
			return nil // ctx has ended
		}
		s.schedule(ctx, item)
	}
}

// gate returns the status of the first PreEnqueue plugin that keeps a pod out of the active queue,
// or nil.
func (s *Scheduler) gate(pod *v1.Pod) *scheduling.Status {
	start := s.cfg.Clock.Now()
	st := s.cfg.Profiles.Gate(pod)
	s.metrics.points[pod.Spec.SchedulerName].observe(preEnqueue, codeOf(st), s.cfg.Clock.Since(start))
	return st
}

func (s *Scheduler) flush(ctx context.Context) {
	t := s.cfg.Clock.NewTicker(flushPeriod)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C():
			s.queue.Flush()
		}
	}
}

// schedule tries to schedule the pod of an item that was popped from the queue.
func (s *Scheduler) schedule(ctx context.Context, item *queue.Item) {
	pod := item.Pod
	p := s.cfg.Profiles.Profiles[pod.Spec.SchedulerName]
	if pod.DeletionTimestamp != nil || p == nil {
		s.queue.Delete(pod.UID)
		return
	}
	start := s.cfg.Clock.Now()
	switch stage, g, err := s.stage(item); stage {
	case together:
		s.scheduleGang(ctx, p, item, g, start)
	case underWay:
		s.queue.Await(item, scheduling.PodAdded)
	case groupless:
		s.queue.Await(item, 0)
	case malformed:
		s.refuseMalformed(ctx, p, item, start)
	case alone:
		if err != nil {
			s.conclude(ctx, p, item, decision{}, err, start)
			return
		}
		s.scheduleAlone(ctx, p, item, g, start)
	}
}

// scheduleAlone tries to schedule a pod without regard to other pods of its gang g.
func (s *Scheduler) scheduleAlone(ctx context.Context, p *profile.Profile, item *queue.Item, g gang, start time.Time) {
	if exts := interested(s.cfg.Profiles.Extenders, item.Pod); len(exts) > 0 {
		s.extended.put(item.Pod.UID, func() { s.scheduleExtended(ctx, p, item, exts, start) }, false)
		return
	}
	d, err := s.decide(p, item)
	s.metrics.algorithm.Observe(s.cfg.Clock.Since(start).Seconds())
	if d.node == "" {
		d.group = g.shortage(0, 0)
	}
	s.conclude(ctx, p, item, d, err, start)
}

// conclude carries out a decision: it binds the pod, or reports why the pod has no node.
func (s *Scheduler) conclude(ctx context.Context, p *profile.Profile, item *queue.Item, d decision, err error,
	start time.Time) {
	if err != nil {
		s.reportGroup(item.Pod, metav1.ConditionFalse, schedulingv1beta1.PodGroupReasonSchedulerError, err.Error())
		s.fail(ctx, p, item, err, start)
		return
	}
	if d.node != "" {
		s.bind(ctx, p, item, d, start)
		return
	}
	if d.silent() {
		return
	}
	if d.group != "" {
		s.reportGroup(d.about, metav1.ConditionFalse, schedulingv1beta1.PodGroupReasonUnschedulable, d.group)
	}
	s.metrics.attempt(resultUnschedulable, p.Name, s.cfg.Clock.Since(start))
	s.traceRejection(ctx, d.about, start, d.message)
	if c := d.deallocate; c != nil {
		s.running.Go(func() { s.freeDevices(ctx, c) })
	}
	if c := d.discard; c != nil {
		s.running.Go(func() { s.deleteClaim(ctx, c) })
	}
	s.reject(p, item, d)
}

// decision is the result of one attempt to schedule a pod.
type decision struct {
	decided time.Time // time of the decision; zero if pods are not traced
	node    string    // "" if none
	volumes volumePlan
	claims  dynamicresources.Plan

	// The following fields are set only if the pod has no node.
	about     *v1.Pod // the pod as it was when it was evaluated
	message   string
	reject    *scheduling.Status
	objected  map[*scheduling.Status]int
	events    scheduling.Event // changes that may let the pod fit
	local     bool             // the results of all filters for a node depend on that node alone
	nominate  string
	victims   []*scheduling.Pod
	displaced []*scheduling.Pod // pods of lower priority nominated to the same node
	// preemptor is the PodGroup that the victims are evicted for. It is nil if they are evicted for the pod.
	preemptor *schedulingv1beta1.PodGroup
	// deallocate is a resource claim whose devices are to be released, or nil.
	deallocate *resourcev1.ResourceClaim
	// group says why the pod's PodGroup is not scheduled. It is "" if the PodGroup is, or if the pod is in
	// none.
	group string
	// discard is a claim for extended resources that an earlier attempt left and that is to be
	// deleted, or nil.
	discard *resourcev1.ResourceClaim
}

// silent reports whether the pod waits for a plugin, so that its status is not updated yet.
func (d *decision) silent() bool { return d.reject != nil && d.reject.Code == scheduling.Waiting }

// decide finds a node and assumes the pod there. If no node fits, it returns the reason and
// possible victims, and puts the pod back into the queue.
func (s *Scheduler) decide(p *profile.Profile, item *queue.Item) (decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.evaluateItem(p, item)
	if err != nil {
		return decision{}, err
	}
	if err := e.failure(); err != nil {
		return decision{}, err
	}
	if n := e.best(s.cfg.Rand); n != nil {
		left := s.nominated.node[e.pod.UID]
		d, err := s.assume(e, n)
		if left != n.Name {
			s.vacated(left)
		}
		return d, err
	}
	left := ""
	d := decision{events: e.events(), local: e.local(), reject: e.reject, objected: e.objections()}
	if !d.silent() {
		after := e.deallocate(&d)
		if p.Preemption != nil {
			e.meter.lap()
			after = joinReasons(after, s.preempt(e, &d))
			code := scheduling.Unschedulable
			if len(d.victims) > 0 {
				code = 0
			}
			e.by.points.observe(postFilter, code, e.meter.lap())
		}
		if len(d.victims) > 0 {
			after = victimsMessage(&d)
		}
		left = s.nominateTo(e.pod, d.nominate)
		d.message = fitMessage(len(s.view.Nodes()), d.reject, d.objected, after)
	}
	s.park(item, &d)
	s.vacated(left)
	s.wakeDisplaced(&d)
	return d, nil
}

// park puts a pod without a node back into the queue. If d.local is true, the caller has held s.mu since
// the evaluation, because the queue does not remember for such a pod which pods left a node meanwhile.
func (s *Scheduler) park(item *queue.Item, d *decision) {
	d.about = item.Pod // from here on, another goroutine can change item.Pod
	item.Rejectors = d.rejectors()
	if d.silent() {
		s.queue.Await(item, d.events)
		return
	}
	s.queue.Unschedulable(item, d.events, d.local)
	if len(d.victims) > 0 {
		// The pod has victims. A retry before they are evicted would choose more victims.
		s.queue.Hold(item)
	}
}

func (s *Scheduler) evaluateItem(p *profile.Profile, item *queue.Item) (*evaluation, error) {
	c, err := s.kinds.of(p, item)
	if err != nil {
		return nil, err
	}
	s.view.Join(c.pod)
	return s.evaluator.evaluateAs(s.view, p, c.pod, c.class, s.nominated), nil
}

// evaluateOn evaluates the pod on one node. The returned n is nil if the pod does not fit there.
func (s *Scheduler) evaluateOn(p *profile.Profile, item *queue.Item, node string) (e *evaluation,
	n *scheduling.Node, err error) {
	c, err := s.kinds.of(p, item)
	if err != nil {
		return nil, nil, err
	}
	s.view.Join(c.pod)
	e = s.evaluator.begin(s.view, p, c.pod, c.class, s.nominated)
	if n = s.view.NodeByName(node); !e.fits(n) {
		n = nil
	}
	return e, n, nil
}

// assume counts the pod on the node before it is bound, and reserves the volumes and devices that
// it gets there.
func (s *Scheduler) assume(e *evaluation, n *scheduling.Node) (decision, error) {
	d := decision{node: n.Name, volumes: e.planVolumes(n), decided: s.traceTime()}
	if e.devices != nil {
		plan, st := e.devices.Plan(n)
		if st != nil {
			e.by.points.observe(reserve, codeOf(st), e.meter.lap())
			return decision{}, fmt.Errorf("node %s: %s", n.Name, strings.Join(st.Reasons, ", "))
		}
		d.claims = plan
		s.view.devices.reserve(plan)
	}
	s.view.reserved.reserve(d.volumes, d.node)
	s.nominated.remove(e.pod.UID)
	s.view.Assume(e.pod, n.Name)
	s.gangs.set(e.pod.Pod, true)
	e.by.points.observe(reserve, 0, e.meter.lap())
	return d, nil
}

// preempt stores the node to clear and its victims in d. If there is no such node, it returns the
// reason.
func (s *Scheduler) preempt(e *evaluation, d *decision) string {
	found, why := s.found(e)
	if len(found) > 0 {
		s.clear(e.rank, slices.MinFunc(found, compareCandidates), d)
		return ""
	}
	if waits := e.pod.Status.NominatedNodeName; waits != "" && ineligible(s.view, e) != "" {
		d.nominate = waits // an earlier attempt's victims are still terminating, so keep the nomination
	}
	return why
}

func (s *Scheduler) found(e *evaluation) (found []candidate, why string) {
	s.metrics.preemptions.Inc()
	budgets, err := s.sources.allBudgets()
	if err != nil {
		return nil, "preemption: " + err.Error()
	}
	return e.preempt(compileBudgets(budgets), s.cfg.Rand)
}

// clear decides to evict the victims of candidate c for a pod, and stores them in d. Pods nominated
// to the node with a priority lower than rank lose their nomination.
func (s *Scheduler) clear(rank int32, c candidate, d *decision) {
	d.nominate, d.victims = c.node, c.victims
	s.metrics.victims.Observe(float64(len(c.victims)))
	for _, v := range d.victims {
		if node, _, ok := s.view.Placed(v.UID); ok { // a victim in a PodGroup may be on another node than c.node
			s.view.evicting.add(v, node)
		}
	}
	d.displaced = s.nominated.below(c.node, rank)
	for _, other := range d.displaced {
		s.nominated.remove(other.UID)
	}
}

// nominateTo nominates a pod to a node, or removes its nomination if node is "". A pod that has
// left the queue is not nominated: its nomination would remain, because the handler that removed it
// from the queue may have run already. nominateTo returns the node to which the pod is no longer
// nominated, or "". The caller passes it to vacated once the pod is back in the queue.
func (s *Scheduler) nominateTo(pod *scheduling.Pod, node string) (left string) {
	if s.queue.Get(pod.UID) == nil {
		node = ""
	}
	known := s.nominated.node[pod.UID]
	if s.nominated.set(pod, node); known == node {
		return ""
	}
	return known
}

// local reports whether the results of all filters for a node depend on that node alone. If so, a
// pod that leaves a node can make this pod fit on that node only.
func (e *evaluation) local() bool { return e.reject == nil && len(e.cell) == 0 }

// rejectors returns the names of the plugins that rejected the pod.
func (d *decision) rejectors() []string {
	var out []string
	if d.reject != nil {
		out = append(out, d.reject.Plugin)
	}
	for st := range d.objected {
		if !slices.Contains(out, st.Plugin) {
			out = append(out, st.Plugin)
		}
	}
	return out
}

// events returns the events after which the pod may fit. They are the events of the plugins that
// rejected it.
func (e *evaluation) events() scheduling.Event {
	rejected := map[string]bool{}
	if e.reject != nil {
		rejected[e.reject.Plugin] = true
	}
	for st := range e.objections() {
		rejected[st.Plugin] = true
	}
	var events scheduling.Event
	for _, plugins := range [][]profile.Filter{e.profile.NodeFilters, e.profile.CellFilters} {
		for _, p := range plugins {
			if rejected[p.Plugin] {
				events |= p.Events
			}
		}
	}
	if len(e.statuses) == 0 && e.reject == nil {
		events |= scheduling.NodeAdded
	}
	return events
}
