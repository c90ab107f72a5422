// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queue holds the pods that wait for a node.
//
// A pod is in one of four places: active (to be tried, in the order of the
// profile's queue sort), backing off (tried lately, without success),
// unschedulable (tried; waiting for an event that one of the plugins that
// rejected it named, or for five minutes to pass), or gated. A pod taken out
// with Pop is in flight until Done, Unschedulable or Retry is called with it;
// events that come meanwhile are remembered for it.
//
// The queue is safe for concurrent use.
package queue

import (
	"container/heap"
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/clock"
	"keelson.dev/scheduling"
)

// maxUnschedulable is how long a pod waits at most before it is tried again
// without an event (Kubernetes: podMaxInUnschedulablePodsDuration).
const maxUnschedulable = 5 * time.Minute

// maxDoublings is after how many the back-off is at its longest in any case.
const maxDoublings = 62

// Config is what a queue is made of.
type Config struct {
	Clock clock.Clock
	Less  func(a, b scheduling.QueuedPod) bool
	// Gate says why a pod must not be tried; nil Status: it may.
	Gate func(*v1.Pod) *scheduling.Status
	// Gang names the gang a pod belongs to; "": none.
	Gang           func(*v1.Pod) string
	InitialBackoff time.Duration
	MaxBackoff     time.Duration
}

// Item is a pod in the queue.
type Item struct {
	// Pod stays as it was when the item was taken out, as long as it is in flight.
	Pod      *v1.Pod
	Attempts int
	Since    time.Time // when the pod came first
	// Memo is for whoever takes the item out; it is kept with it.
	Memo any

	latest  *v1.Pod // state
	place   place
	index   int       // in the heap of its place
	ready   time.Time // end of back-off
	parked  time.Time
	events  scheduling.Event // that can help it
	popped  uint64           // when it was taken out, in events
	changed bool             // while in flight
	local   bool             // see Unschedulable
	failed  bool             // tried with an error
	held    bool             // not to be tried before Release
	wanted  bool             // an event that can help came while held
	turn    int64
	gatedBy *scheduling.Status
	gang    string // "": none
}

type place int8

const (
	inFlight place = iota
	active
	backoff
	unschedulable
	gated
)

// Queue is a scheduling queue.
type Queue struct {
	cfg Config

	mu      sync.Mutex
	items   map[types.UID]*Item
	active  itemHeap
	backoff itemHeap
	parked  map[*Item]struct{} // the unschedulable ones
	turns   turns
	gangs   gangs
	// happened counts the events so far, latest has the number of the last one of
	// each kind: what an item in flight has missed is found without a list of them.
	happened uint64
	latest   [32]uint64
	wake     chan struct{} // holds one token when there may be work
}

// New returns an empty queue.
func New(cfg Config) *Queue {
	q := &Queue{cfg: cfg, items: map[types.UID]*Item{}, parked: map[*Item]struct{}{}, turns: turns{}, gangs: gangs{}, wake: make(chan struct{}, 1)}
	q.active.less = func(a, b *Item) bool { return cfg.Less(queued(a), queued(b)) }
	q.backoff.less = func(a, b *Item) bool { return a.ready.Before(b.ready) }
	return q
}

func queued(i *Item) scheduling.QueuedPod {
	return scheduling.QueuedPod{Pod: i.latest, Since: i.Since.UnixNano(), Turn: i.turn}
}

// Set adds a pending pod, or takes over its new state.
func (q *Queue) Set(pod *v1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	item := q.items[pod.UID]
	if item == nil {
		item = &Item{Pod: pod, latest: pod, Since: q.cfg.Clock.Now()}
		q.join(item)
		q.items[pod.UID] = item
		q.enqueue(item)
		return
	}
	q.update(item, pod)
}

// Update takes over the new state of a pod, if it is in the queue.
func (q *Queue) Update(pod *v1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if item := q.items[pod.UID]; item != nil {
		q.update(item, pod)
	}
}

func (q *Queue) update(item *Item, pod *v1.Pod) {
	old := item.latest
	item.latest = pod
	if item.place != inFlight {
		item.Pod = pod
	}
	q.join(item)
	switch item.place {
	case active:
		heap.Fix(&q.active, item.index)
	case gated:
		q.enqueue(item)
	case unschedulable:
		if changed(old, pod) {
			q.retry(item)
		}
	case inFlight:
		item.changed = item.changed || changed(old, pod)
	}
}

// changed tells whether something a plugin may look at is different: of the
// status only the claims made for the pod, the scheduler itself writes the rest.
func changed(old, pod *v1.Pod) bool {
	return old.Generation != pod.Generation || old.Generation == 0 || !equal(old.Labels, pod.Labels) || !equal(old.Annotations, pod.Annotations) ||
		len(old.Status.ResourceClaimStatuses) != len(pod.Status.ResourceClaimStatuses)
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// Delete takes a pod out: it was deleted, bound, or belongs to somebody else.
func (q *Queue) Delete(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if item := q.items[uid]; item != nil {
		q.remove(item)
		q.gangs.remove(item)
		delete(q.items, uid)
	}
}

// Get returns a pod's present state, or nil when it is not in the queue.
func (q *Queue) Get(uid types.UID) *v1.Pod {
	q.mu.Lock()
	defer q.mu.Unlock()
	if item := q.items[uid]; item != nil {
		return item.latest
	}
	return nil
}

// Pop waits for the next pod to try. It returns ctx's error when ctx is done.
func (q *Queue) Pop(ctx context.Context) (*Item, error) {
	for {
		item, wait := q.tryPop()
		if item != nil {
			return item, nil
		}
		var timeout <-chan time.Time
		var stop func() bool
		if wait > 0 {
			t := q.cfg.Clock.NewTimer(wait)
			timeout, stop = t.C(), t.Stop
		}
		select {
		case <-ctx.Done():
		case <-q.wake:
		case <-timeout:
		}
		if stop != nil {
			stop()
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// tryPop returns the next pod, or how long to wait for one (0: until woken).
func (q *Queue) tryPop() (*Item, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.cfg.Clock.Now()
	q.endBackoffs(now)
	if q.active.Len() > 0 {
		return q.take(heap.Pop(&q.active).(*Item)), 0
	}
	if q.backoff.Len() > 0 {
		first := q.backoff.items[0]
		if first.failed {
			return nil, first.ready.Sub(now)
		}
		// There is nothing else to do, so that it may as well be tried now, as in
		// Kubernetes. After an error it would be too soon.
		heap.Pop(&q.backoff)
		return q.take(first), 0
	}
	return nil, 0
}

func (q *Queue) endBackoffs(now time.Time) {
	for q.backoff.Len() > 0 && !q.backoff.items[0].ready.After(now) {
		item := heap.Pop(&q.backoff).(*Item)
		q.push(item, active)
	}
}

// PopBefore returns the next pod to try if it comes before one that is in flight; nil: none does.
func (q *Queue) PopBefore(item *Item) *Item {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endBackoffs(q.cfg.Clock.Now())
	if q.active.Len() == 0 || !q.active.less(q.active.items[0], item) {
		return nil
	}
	return q.take(heap.Pop(&q.active).(*Item))
}

func (q *Queue) take(item *Item) *Item {
	item.place, item.popped, item.changed = inFlight, q.happened, false
	item.Attempts++
	q.turns.taken(item)
	return item
}

// Done ends a pod's flight with success: it leaves the queue.
func (q *Queue) Done(uid types.UID) { q.Delete(uid) }

// Unschedulable ends a pod's flight: nothing fits it until one of events comes.
// local says that a pod which leaves a node helps on that node only.
func (q *Queue) Unschedulable(item *Item, events scheduling.Event, local bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.land(item) {
		return
	}
	item.events, item.local, item.failed = events|scheduling.PodChanged, local, false
	item.ready = q.cfg.Clock.Now().Add(q.backoffOf(item))
	q.park(item)
}

// Await ends a pod's flight that does not count as a try: it waits for one of
// events, and not for a back-off.
func (q *Queue) Await(item *Item, events scheduling.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.land(item) {
		return
	}
	item.Attempts--
	item.events, item.local, item.failed = events|scheduling.PodChanged, false, false
	item.ready = q.cfg.Clock.Now()
	q.park(item)
}

// land ends an item's flight, if it has not ended. The pod's latest state counts again.
func (q *Queue) land(item *Item) bool {
	if q.items[item.Pod.UID] != item || item.place != inFlight {
		return false
	}
	item.Pod = item.latest
	return true
}

// park puts an item among the unschedulable ones, if nothing has happened that helps it.
func (q *Queue) park(item *Item) {
	if item.changed || q.missed(item) {
		q.retry(item)
		return
	}
	item.parked = q.cfg.Clock.Now()
	item.place = unschedulable
	q.parked[item] = struct{}{}
}

// missed tells whether an event that can help an item came while it was in
// flight. Of pods that leave a node, local items miss none: whoever tells of one
// does not while an item is decided about.
func (q *Queue) missed(item *Item) bool {
	events := item.events
	if item.local {
		events &^= scheduling.PodRemoved
	}
	for bit := range q.latest {
		if events&(1<<bit) != 0 && q.latest[bit] > item.popped {
			return true
		}
	}
	return false
}

// Retry ends a pod's flight after an error: it is tried again after its back-off.
func (q *Queue) Retry(item *Item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.land(item) {
		return
	}
	item.ready, item.failed = q.cfg.Clock.Now().Add(q.backoffOf(item)), true
	q.retry(item)
}

// Happened tells the queue of events: pods that wait for one of them are tried again.
func (q *Queue) Happened(events scheduling.Event) { q.HappenedFor(events, nil) }

// HappenedFor is Happened for a change of one node: helps tells for a pod that
// only waits for room on some node whether there is room on that one now. The
// queue is locked while it is asked.
func (q *Queue) HappenedFor(events scheduling.Event, helps func(*Item) bool) {
	if events == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.happened++
	for bit := range q.latest {
		if events&(1<<bit) != 0 {
			q.latest[bit] = q.happened
		}
	}
	for item := range q.parked {
		if item.events&events == 0 || helps != nil && item.local && !helps(item) {
			continue
		}
		if item.held {
			item.wanted = true
			continue
		}
		q.retry(item)
	}
}

// Flush tries pods again that have been unschedulable for too long. It is to be
// called now and then.
func (q *Queue) Flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.cfg.Clock.Now()
	limit := now.Add(-maxUnschedulable)
	for item := range q.parked {
		// A clock that was set back must not keep a pod for ever.
		if item.parked.Before(limit) || item.parked.After(now) {
			q.retry(item)
		}
	}
	late := now.Add(q.cfg.MaxBackoff)
	for _, item := range q.backoff.items {
		if item.ready.After(late) { // set back, too
			item.ready = late
		}
	}
	heap.Init(&q.backoff)
	q.signal()
}

// Lengths returns how many pods are in each place, for metrics.
func (q *Queue) Lengths() (activePods, backoffPods, unschedulablePods, gatedPods int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, item := range q.items {
		if item.place == gated {
			gatedPods++
		}
	}
	return q.active.Len(), q.backoff.Len(), len(q.parked), gatedPods
}

// GatedBy returns why a pod is gated; nil when it is not.
func (q *Queue) GatedBy(uid types.UID) *scheduling.Status {
	q.mu.Lock()
	defer q.mu.Unlock()
	if item := q.items[uid]; item != nil && item.place == gated {
		return item.gatedBy
	}
	return nil
}

func (q *Queue) enqueue(item *Item) {
	if st := q.cfg.Gate(item.latest); st != nil {
		item.place, item.gatedBy = gated, st
		return
	}
	item.gatedBy = nil
	q.push(item, active)
}

// retry puts an item where it waits out its back-off, if any is left.
func (q *Queue) retry(item *Item) {
	item.held = false
	delete(q.parked, item)
	if item.ready.After(q.cfg.Clock.Now()) {
		q.push(item, backoff)
		return
	}
	q.push(item, active)
}

func (q *Queue) push(item *Item, where place) {
	item.place = where
	if where == active {
		q.turns.give(item)
		heap.Push(&q.active, item)
	} else {
		heap.Push(&q.backoff, item)
	}
	q.signal()
}

// signal has Pop look again.
func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *Queue) remove(item *Item) {
	switch item.place {
	case active:
		heap.Remove(&q.active, item.index)
	case backoff:
		heap.Remove(&q.backoff, item.index)
	}
	delete(q.parked, item)
	item.place = inFlight
}

// backoffOf doubles with each attempt.
func (q *Queue) backoffOf(item *Item) time.Duration {
	d := q.cfg.InitialBackoff
	for range min(item.Attempts-1, maxDoublings) {
		if d *= 2; d >= q.cfg.MaxBackoff {
			return q.cfg.MaxBackoff
		}
	}
	return d
}
