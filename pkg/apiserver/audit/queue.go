// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/client-go/util/flowcontrol"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
)

const (
	// maxMemory is the maximum size, in bytes, of the events that wait in memory.
	maxMemory = 32 << 20
	// eventCost is the approximate size in memory, in bytes, of an event without its bodies.
	eventCost = 2 << 10
	// attempts is how many times a batch from memory is sent before it is written to disk.
	attempts = 5
	// maxPause is the maximum pause between attempts to deliver a batch of events.
	maxPause = time.Minute
	// tries is how many times a batch from disk is sent if the receiver answers with an error but
	// accepts other batches in between. After that, the batch's events are sent one by one, and
	// those that fail are dropped.
	tries = 3
)

// queue collects audit events and delivers them in batches.
type queue struct {
	// The arguments of newQueue.

	target  target
	cfg     config.AuditBatching
	clock   clock.Clock
	log     *slog.Logger
	metrics queueMetrics
	limit   flowcontrol.PassiveRateLimiter // nil if there is no limit

	// Channels by which goroutines of the queue wait for each other.

	wake    chan struct{} // has one element if there may be events to deliver
	done    chan struct{} // closed when the method loop has returned
	sending chan struct{} // has one element for each delivery in progress; limits their number

	mu     sync.Mutex        // guards the fields below
	events []*auditapi.Event // events in memory
	bytes  int
	files  *ring
	closed bool
	taken  uint64 // number of successful deliveries, by which hopeless detects that the receiver works
}

var _ audit.Backend = &queue{}

func newQueue(t target, cfg config.AuditBatching, files *ring, deps Deps, m queueMetrics) *queue {
	q := &queue{
		target: t, cfg: cfg, clock: deps.Clock, log: deps.Log.With("plugin", t.name()), metrics: m, files: files,
		wake: make(chan struct{}, 1), done: make(chan struct{}), sending: make(chan struct{}, t.senders()),
	}
	if cfg.ThrottleEnable {
		q.limit = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(cfg.ThrottleQPS, cfg.ThrottleBurst, q.clock)
	}
	m.bytes.Set(float64(files.size))
	return q
}

// String implements audit.Backend.
func (q *queue) String() string { return "queue<" + q.target.name() + ">" }

// ProcessEvents implements audit.Sink. It never waits for the receiver. It waits for a write to
// disk if there is no room in memory or if older events are on disk.
func (q *queue) ProcessEvents(events ...*auditapi.Event) bool {
	var over []*auditapi.Event
	q.mu.Lock()
	for _, e := range events {
		size := cost(e)
		// Keep the order: append to the files if they contain older events.
		if q.closed || len(over) > 0 || !q.files.empty() || len(q.events) >= q.cfg.BufferSize || q.bytes+size > maxMemory {
			over = append(over, e)
			continue
		}
		q.events, q.bytes = append(q.events, e.DeepCopy()), q.bytes+size
	}
	q.metrics.waiting.Set(float64(len(q.events)))
	enough := len(q.events) >= q.cfg.MaxSize || len(q.events) == len(events)
	q.mu.Unlock()
	q.spill(over)
	if enough || len(over) > 0 {
		q.notify()
	}
	return true
}

func (q *queue) notify() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// cost returns the approximate size of an audit event in memory, in bytes.
func cost(e *auditapi.Event) int {
	n := eventCost
	if e.RequestObject != nil {
		n += len(e.RequestObject.Raw)
	}
	if e.ResponseObject != nil {
		n += len(e.ResponseObject.Raw)
	}
	return n
}

// spill writes audit events to the ring of files on disk, from which they are delivered later. It
// counts those that cannot be written as dropped.
func (q *queue) spill(events []*auditapi.Event) {
	if len(events) == 0 {
		return
	}
	encoder := audit.Codecs.LegacyCodec(auditv1.SchemeGroupVersion)
	lost := 0
	var rows [][]byte
	for _, e := range events {
		row, err := runtime.Encode(encoder, e)
		if err != nil {
			lost++
			continue
		}
		rows = append(rows, row)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var failed error
	for _, row := range rows {
		dropped, err := q.files.add(row)
		lost += dropped
		if err != nil {
			lost, failed = lost+1, err
			continue
		}
		q.metrics.spilled.Inc()
	}
	q.metrics.bytes.Set(float64(q.files.size))
	if lost == 0 {
		return
	}
	q.metrics.dropped.Add(float64(lost))
	q.log.Debug("Audit events dropped", "events", lost, "err", failed)
}

// Run implements audit.Backend.
func (q *queue) Run(stop <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(q.done)
		defer cancel()
		q.loop(ctx, stop)
	}()
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return nil
}

// Shutdown implements audit.Backend. It delivers the events in memory. Those that it cannot deliver
// are written to disk.
func (q *queue) Shutdown() {
	<-q.done
	q.settle()
	q.mu.Lock()
	rest := q.events
	q.events, q.bytes, q.closed = nil, 0, true
	behind := !q.files.empty()
	q.mu.Unlock()
	for batch := range slices.Chunk(rest, q.cfg.MaxSize) {
		if !behind {
			ctx, cancel := context.WithTimeout(context.Background(), lastDelivery)
			err := q.target.deliver(ctx, batch...)
			cancel()
			if err == nil {
				continue
			}
			behind = true
		}
		q.spill(batch)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.files.close(); err != nil {
		q.log.Error("Failed to close the files of waiting audit events", "err", err)
	}
	q.metrics.waiting.Set(0)
}

// lastDelivery limits the delivery of each batch in Shutdown.
const lastDelivery = 5 * time.Second

// loop starts deliveries of audit events until stop is closed.
func (q *queue) loop(ctx context.Context, stop <-chan struct{}) {
	for {
		batch := q.gather(stop)
		select {
		case <-stop:
			q.putBack(batch)
			return
		default:
		}
		switch {
		case len(batch) > 0:
			q.throttle(ctx)
			q.sending <- struct{}{}
			go func() {
				defer func() { <-q.sending }()
				q.send(ctx, batch)
			}()
		default:
			q.drain(ctx)
		}
	}
}

func (q *queue) putBack(batch []*auditapi.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.events = append(batch, q.events...)
}

// gather waits until a batch of events in memory is full or old enough, and returns it. If there
// are also events on disk, it does not wait: it returns the events in memory, which are older, or
// none if only those on disk are left. It also returns none if stop is closed.
func (q *queue) gather(stop <-chan struct{}) []*auditapi.Event {
	var full <-chan time.Time
	for {
		q.mu.Lock()
		n, disk := len(q.events), !q.files.empty()
		q.mu.Unlock()
		switch {
		case n >= q.cfg.MaxSize || n > 0 && disk:
			return q.take()
		case disk:
			return nil
		case n > 0 && full == nil:
			timer := q.clock.NewTimer(q.cfg.MaxWait)
			defer timer.Stop()
			full = timer.C()
		}
		select {
		case <-stop:
			return nil
		case <-full:
			return q.take()
		case <-q.wake:
		}
	}
}

func (q *queue) take() []*auditapi.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.events), q.cfg.MaxSize)
	batch := slices.Clone(q.events[:n])
	q.events = slices.Delete(q.events, 0, n)
	for _, e := range batch {
		q.bytes -= cost(e)
	}
	q.metrics.waiting.Set(float64(len(q.events)))
	return batch
}

func (q *queue) throttle(ctx context.Context) {
	for q.limit != nil && !q.limit.TryAccept() && ctx.Err() == nil {
		q.pause(ctx, time.Duration(float64(time.Second)/float64(q.cfg.ThrottleQPS)))
	}
}

func (q *queue) pause(ctx context.Context, d time.Duration) {
	timer := q.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// send delivers a batch of audit events. If all attempts fail, it writes the batch to disk.
func (q *queue) send(ctx context.Context, batch []*auditapi.Event) {
	if err := q.insist(ctx, batch); err != nil {
		if ctx.Err() == nil {
			q.log.Error("Failed to deliver audit events", "events", len(batch), "err", err)
		}
		q.spill(batch)
		q.notify()
	}
}

// deliver makes one attempt to deliver a batch of audit events, and counts the batch in taken if it
// succeeds.
func (q *queue) deliver(ctx context.Context, batch []*auditapi.Event) error {
	err := q.target.deliver(ctx, batch...)
	if err == nil {
		q.mu.Lock()
		q.taken++
		q.mu.Unlock()
	}
	return err
}

// insist tries to deliver a batch, at most as often as the constant attempts says. It gives up earlier
// if the receiver rejects the content of the batch.
func (q *queue) insist(ctx context.Context, batch []*auditapi.Event) error {
	wait := q.target.retry()
	for i := 1; ; i++ {
		err := q.deliver(ctx, batch)
		if err == nil || i == attempts || ctx.Err() != nil || refused(err) {
			return err
		}
		q.metrics.retried.Inc()
		q.pause(ctx, wait)
		wait = min(wait*3/2, maxPause)
	}
}

// divide delivers a batch. If the receiver rejects the content, divide delivers both halves on
// their own, and so on. It drops an event that is rejected alone, because the receiver would never
// accept it, and it would delay later events.
func (q *queue) divide(ctx context.Context, batch []*auditapi.Event) error {
	q.throttle(ctx)
	err := q.insist(ctx, batch)
	if !refused(err) {
		return err
	}
	if len(batch) == 1 {
		q.drop(batch[0], err)
		return nil
	}
	half := len(batch) / 2
	if err := q.divide(ctx, batch[:half]); err != nil {
		return err
	}
	return q.divide(ctx, batch[half:])
}

// drop logs and counts an audit event that the receiver rejects. The caller does not deliver it
// again.
func (q *queue) drop(e *auditapi.Event, why error) {
	q.log.Error("Audit event rejected by backend", "auditID", e.AuditID, "err", why)
	q.metrics.dropped.Inc()
}

// each delivers the events of a batch one by one, with one attempt each, and drops those that fail.
func (q *queue) each(ctx context.Context, batch []*auditapi.Event) error {
	for _, e := range batch {
		q.throttle(ctx)
		switch err := q.deliver(ctx, []*auditapi.Event{e}); {
		case err == nil:
		case ctx.Err() != nil || !answered(err):
			return err
		default:
			q.drop(e, err)
		}
	}
	return nil
}

// answered reports whether err is an answer of the receiver, and not a failure to reach it.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// refused reports whether err is an answer by which the receiver rejects the events themselves:
// they are invalid or too large.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// settle waits until no delivery of send is in progress.
func (q *queue) settle() {
	for range cap(q.sending) {
		q.sending <- struct{}{}
	}
	for range cap(q.sending) {
		<-q.sending
	}
}

// drain delivers the events in the oldest file of the ring. If that fails, it moves the file behind
// the other files. The file then stays until it is delivered, or until the ring is full.
func (q *queue) drain(ctx context.Context) {
	q.settle() // the deliveries in progress have older events than the files
	q.mu.Lock()
	f, rows, err := q.files.oldest()
	q.mu.Unlock()
	if err != nil {
		q.log.Error("Failed to read the files of waiting audit events", "err", err)
		q.pause(ctx, q.target.retry())
	}
	events, broken := decode(rows)
	if err != nil && f != nil {
		broken = f.lines
	}
	if err := q.empty(ctx, f, events); err != nil {
		if ctx.Err() == nil {
			q.log.Error("Failed to deliver audit events", "err", err)
			q.pause(ctx, maxPause)
		}
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.metrics.dropped.Add(float64(broken))
	if f == nil {
		return
	}
	if err := q.files.remove(f); err != nil {
		q.log.Error("Failed to delete a file of waiting audit events", "err", err)
	}
	q.metrics.bytes.Set(float64(q.files.size))
}

// empty delivers those events of f that have not been delivered yet. If that fails, it moves f
// behind the other files.
func (q *queue) empty(ctx context.Context, f *ringFile, events []*auditapi.Event) error {
	for f != nil && f.done < len(events) {
		batch := events[f.done:min(len(events), f.done+q.cfg.MaxSize)]
		err := q.divide(ctx, batch)
		if err != nil && answered(err) && q.hopeless(f) {
			err = q.each(ctx, batch)
		}
		if err != nil {
			return errors.Join(err, q.postpone(f))
		}
		f.done, f.failed = f.done+len(batch), 0
	}
	return nil
}

// hopeless records a failed delivery of a batch of f. It reports whether the batch should be given
// up: the receiver has failed it tries times, and has accepted other batches in between.
func (q *queue) hopeless(f *ringFile) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if f.failed == 0 {
		f.taken = q.taken
	}
	f.failed++
	return f.failed >= tries && q.taken > f.taken
}

// postpone moves the file f behind the other files of events that wait on disk.
func (q *queue) postpone(f *ringFile) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.files.postpone(f)
}

// decode decodes the lines of a file. broken is the number of lines that cannot be decoded, because
// the process was killed while it wrote them.
func decode(rows [][]byte) (events []*auditapi.Event, broken int) {
	decoder := audit.Codecs.UniversalDecoder(auditapi.SchemeGroupVersion)
	for _, row := range rows {
		e := &auditapi.Event{}
		if err := runtime.DecodeInto(decoder, row, e); err != nil {
			broken++
			continue
		}
		events = append(events, e)
	}
	return events, broken
}
