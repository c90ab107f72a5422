// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queue holds the pods that wait for a node.
//
// A pod is in one of four places: active (to be tried, in the order of the queue sort plugin),
// backoff (tried recently without success), unschedulable (waiting for an event that a plugin which
// rejected it named, or for five minutes to pass), or gated (not to be tried). A pod that Pop has
// returned is in flight until Done, Unschedulable, Await or Retry is called for it. The queue
// remembers events that happen while a pod is in flight.
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

// maxUnschedulable is how long a pod waits for an event. After that time it is tried again anyway.
// Kubernetes calls this podMaxInUnschedulablePodsDuration.
const maxUnschedulable = 5 * time.Minute

// maxDoublings limits how often the backoff is doubled. After so many doublings any backoff has
// reached its maximum.
const maxDoublings = 62

// Config is the configuration of a queue.
type Config struct {
	Clock clock.Clock
	Less  func(a, b scheduling.QueuedPod) bool
	// Gate returns the status that keeps a pod from being tried, or nil if the pod may be tried.
	Gate func(*v1.Pod) *scheduling.Status
	// Gang returns the key of a pod's gang, or "" if the pod belongs to no gang.
	Gang           func(*v1.Pod) string
	InitialBackoff time.Duration
	MaxBackoff     time.Duration
}

// Item is a pod in the queue.
type Item struct {
	// Pod is the pod's state. It does not change while the item is in flight.
	Pod      *v1.Pod
	Attempts int
	Since    time.Time // when the pod entered the queue
	Tried    time.Time // when the pod was first tried
	// Flushed is true if the pod is tried again only because it was unschedulable for too long.
	Flushed bool
	// Rejectors has the names of the plugins that rejected the pod in its last attempt. The caller
	// of Pop may set it while the item is in flight. Pop clears it.
	Rejectors []string
	// Memo is for data of the caller of Pop. The queue does not use it.
	Memo any

	latest  *v1.Pod // latest state of the pod, also while in flight
	place   place
	index   int       // index in the heap that contains the item
	ready   time.Time // end of backoff
	parked  time.Time
	events  scheduling.Event // events that may let the pod fit
	popped  uint64           // value of Queue.happened when Pop returned the item
	changed bool             // the pod changed while in flight
	local   bool             // the argument local of Unschedulable
	failed  bool             // the last attempt ended with an error
	held    bool             // Hold was called, and Release was not called since
	wanted  Cause            // event while held was set that may let the pod fit, or 0
	turn    int64
	gatedBy *scheduling.Status
	gang    string // "" if none
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
	parked  map[*Item]struct{} // unschedulable items
	turns   turns
	gangs   gangs
	// happened is the number of events so far. latest has, for each kind of event, the value of
	// happened at its last occurrence. With them, the method missed finds out which events happened
	// while an item was in flight.
	happened uint64
	latest   [32]uint64
	wake     chan struct{} // has an element if Pop must check the queue again
	incoming incoming
}

// New returns an empty queue.
func New(cfg Config) *Queue {
	q := &Queue{cfg: cfg, items: map[types.UID]*Item{}, parked: map[*Item]struct{}{}, turns: turns{},
		gangs: gangs{}, wake: make(chan struct{}, 1)}
	q.active.less = func(a, b *Item) bool { return cfg.Less(queued(a), queued(b)) }
	q.backoff.less = func(a, b *Item) bool { return a.ready.Before(b.ready) }
	return q
}

func queued(i *Item) scheduling.QueuedPod {
	return scheduling.QueuedPod{Pod: i.latest, Since: i.Since.UnixNano(), Turn: i.turn}
}

// Set adds a pending pod to the queue, or updates it.
func (q *Queue) Set(pod *v1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	item := q.items[pod.UID]
	if item == nil {
		item = &Item{Pod: pod, latest: pod, Since: q.cfg.Clock.Now()}
		q.join(item)
		q.items[pod.UID] = item
		q.enqueue(item, podAdded)
		return
	}
	q.update(item, pod)
}

// Update updates a pod if it is in the queue.
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
		q.enqueue(item, updateOf(old, pod))
	case unschedulable:
		if changed(old, pod) {
			q.retry(item, updateOf(old, pod))
		}
	case inFlight:
		item.changed = item.changed || changed(old, pod)
	}
}

// changed reports whether two states of a pod differ in a field that a plugin may read. In the
// status, only the claims created for the pod are compared, because the scheduler writes the other
// fields itself.
func changed(old, pod *v1.Pod) bool {
	return old.Generation != pod.Generation || old.Generation == 0 || !equal(old.Labels, pod.Labels) ||
		!equal(old.Annotations, pod.Annotations) ||
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

// Delete removes a pod from the queue. The caller calls it when the pod was deleted or bound, or
// when another scheduler is responsible for it.
func (q *Queue) Delete(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if item := q.items[uid]; item != nil {
		q.remove(item)
		q.gangs.remove(item)
		delete(q.items, uid)
	}
}

// Get returns a pod's latest state, or nil if the pod is not in the queue.
func (q *Queue) Get(uid types.UID) *v1.Pod {
	q.mu.Lock()
	defer q.mu.Unlock()
	if item := q.items[uid]; item != nil {
		return item.latest
	}
	return nil
}

// Pop waits for the next pod to try, and returns it. It returns ctx's error once ctx ends.
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

// tryPop returns the next pod, or nil and how long to wait for one. A wait of 0 means to wait for a
// signal.
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
		// No active pod is waiting, so the pod is tried before its backoff ends, as in Kubernetes.
		// The check above excludes pods whose last attempt ended with an error.
		heap.Pop(&q.backoff)
		q.incoming.count(active, backoffPopped)
		return q.take(first), 0
	}
	return nil, 0
}

func (q *Queue) endBackoffs(now time.Time) {
	for q.backoff.Len() > 0 && !q.backoff.items[0].ready.After(now) {
		item := heap.Pop(&q.backoff).(*Item)
		q.push(item, active, backoffEnded)
	}
}

// PopBefore returns the next pod to try if it comes before item, which is in flight, in the queue's
// order. Otherwise it returns nil.
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
	if item.Tried.IsZero() {
		item.Tried = q.cfg.Clock.Now()
	}
	item.place, item.popped, item.changed, item.Rejectors = inFlight, q.happened, false, nil
	item.Attempts++
	q.turns.taken(item)
	return item
}

// Done removes a pod in flight from the queue after it was bound.
func (q *Queue) Done(uid types.UID) { q.Delete(uid) }

// Unschedulable ends the flight of a pod that fits no node. The pod waits for one of events. local
// means that a pod which leaves a node can help this pod on that node only.
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

// Await ends the flight of a pod without counting an attempt. The pod waits for one of events,
// without backoff.
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

// land ends an item's flight and sets the item's Pod to the latest state. It returns false if the
// item was not in flight.
func (q *Queue) land(item *Item) bool {
	if q.items[item.Pod.UID] != item || item.place != inFlight {
		return false
	}
	item.Pod, item.Flushed = item.latest, false
	return true
}

// park makes an item unschedulable. If an event that may let the pod fit happened during the
// flight, the item is retried instead.
func (q *Queue) park(item *Item) {
	if item.changed || q.missed(item) {
		q.retry(item, attemptFailed)
		return
	}
	item.parked = q.cfg.Clock.Now()
	item.place = unschedulable
	q.incoming.count(unschedulable, attemptFailed)
	q.parked[item] = struct{}{}
}

// missed reports whether an event that may let the pod fit happened while the item was in flight.
// For a local item, the event that a pod left a node is excluded: the caller sends it under the
// scheduler's lock, which it holds while it decides about the item.
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

// Retry ends the flight of a pod after an error. The pod is tried again when its backoff ends.
func (q *Queue) Retry(item *Item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.land(item) {
		return
	}
	item.ready, item.failed = q.cfg.Clock.Now().Add(q.backoffOf(item)), true
	q.retry(item, attemptFailed)
}

// Happened reports events to the queue. Pods that wait for one of the events are tried again.
func (q *Queue) Happened(events scheduling.Event) { q.HappenedFor(events, nil) }

// HappenedFor does the same as Happened, for events about one node. For pods that wait only for
// room on a node (local), it calls helps, which reports whether the pod now fits the node that
// changed. The queue is locked during that call.
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
		why := causeOf(item.events & events)
		if item.held {
			item.wanted = why
			continue
		}
		q.retry(item, why)
	}
}

// Flush retries pods that have been unschedulable for longer than maxUnschedulable. The scheduler
// calls it periodically.
func (q *Queue) Flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.cfg.Clock.Now()
	limit := now.Add(-maxUnschedulable)
	for item := range q.parked {
		// An item parked in the future means that the clock was set back. It is retried too,
		// because otherwise it could wait forever.
		if item.parked.Before(limit) || item.parked.After(now) {
			item.Flushed = true
			q.retry(item, timedOut)
		}
	}
	late := now.Add(q.cfg.MaxBackoff)
	for _, item := range q.backoff.items {
		if item.ready.After(late) { // the clock was set back
			item.ready = late
		}
	}
	heap.Init(&q.backoff)
	q.signal()
}

// GatedBy returns the status that keeps a pod gated, or nil if the pod is not gated.
func (q *Queue) GatedBy(uid types.UID) *scheduling.Status {
	q.mu.Lock()
	defer q.mu.Unlock()
	if item := q.items[uid]; item != nil && item.place == gated {
		return item.gatedBy
	}
	return nil
}

func (q *Queue) enqueue(item *Item, why Cause) {
	if st := q.cfg.Gate(item.latest); st != nil {
		if item.place != gated {
			q.incoming.count(gated, why)
		}
		item.place, item.gatedBy = gated, st
		return
	}
	item.gatedBy = nil
	q.push(item, active, why)
}

// retry makes an item back off, or makes it active if its backoff has ended.
func (q *Queue) retry(item *Item, why Cause) {
	item.held = false
	delete(q.parked, item)
	if item.ready.After(q.cfg.Clock.Now()) {
		q.push(item, backoff, why)
		return
	}
	q.push(item, active, why)
}

func (q *Queue) push(item *Item, where place, why Cause) {
	item.place = where
	q.incoming.count(where, why)
	if where == active {
		q.turns.give(item)
		heap.Push(&q.active, item)
	} else {
		heap.Push(&q.backoff, item)
	}
	q.signal()
}

// signal wakes Pop, so that it checks again whether a pod can be tried.
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

// backoffOf returns an item's backoff. It doubles with each attempt, up to the maximum.
func (q *Queue) backoffOf(item *Item) time.Duration {
	d := q.cfg.InitialBackoff
	for range min(item.Attempts-1, maxDoublings) {
		if d *= 2; d >= q.cfg.MaxBackoff {
			return q.cfg.MaxBackoff
		}
	}
	return d
}
