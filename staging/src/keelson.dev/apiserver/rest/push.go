// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/streams"
)

// push is a watch whose handler sleeps: its events are sent by whoever serves the queue
// of those that have some. What cannot be sent without waiting is left to the
// handler, and so is everything until it has caught up.
type push struct {
	watcher store.Prompter
	enc     *eventEncoder
	to      *streams.Stream
	queued  atomic.Bool
	awake   chan struct{} // told that the handler has to go on

	mu sync.Mutex
	// byHandler says that the handler has the watcher, the encoder and the stream, and nobody
	// else; it changes under mu only, which is not held by one who waits.
	byHandler bool
	left      []byte        // what the handler has to send first
	next      []store.Event // and then
	err       error         // the watch has ended
}

// push serves a watch by pushing its events, and reports whether it could.
func (s *Server) push(ctx, removed context.Context, w http.ResponseWriter, watcher store.Watcher, enc *eventEncoder) (bool, error) {
	conn := streams.FromContext(ctx)
	prompter, ok := watcher.(store.Prompter)
	if conn == nil || !ok {
		return false, nil
	}
	to, err := conn.Take(ctx, w)
	if errors.Is(err, streams.ErrLost) {
		panic(http.ErrAbortHandler) // what was sent is no answer any more
	}
	if to == nil {
		return err != nil, nil
	}
	defer to.Release()
	p := &push{watcher: prompter, enc: enc, to: to, awake: make(chan struct{}, 1), byHandler: true}
	defer p.keep()
	prompter.Prompt(func() { s.pushes.add(p) })
	for p.serve(ctx, removed) {
		select {
		case <-ctx.Done():
			return true, nil
		case <-p.awake:
		}
	}
	return true, nil
}

// serve is the handler's part: it sends until there is nothing to be sent, and reports
// whether the watch goes on.
func (p *push) serve(ctx, removed context.Context) bool {
	if p.to.Send(ctx, p.left) != nil {
		return false
	}
	next, err := p.next, p.err
	p.left, p.next = nil, nil
	if len(next) > 0 && !p.enc.s.sendEvents(writer{ctx, p.to}, next, p.enc) {
		return false
	}
	for err == nil {
		var events []store.Event
		if events, err = p.poll(); err != nil {
			break
		}
		if len(events) == 0 {
			return true
		}
		if !p.enc.s.sendEvents(writer{ctx, p.to}, events, p.enc) {
			return false
		}
		p.enc.told(events)
	}
	_ = p.to.Send(ctx, p.enc.last(ctx, removed, err))
	return false
}

// poll returns the handler's next events. If there are none it has given the watch away.
func (p *push) poll() ([]store.Event, error) {
	if events, err := p.watcher.Poll(); err != nil || len(events) > 0 {
		return events, err
	}
	p.mu.Lock() // what comes after this Poll finds that the handler sleeps
	defer p.mu.Unlock()
	events, err := p.watcher.Poll()
	p.byHandler = err != nil || len(events) > 0
	return events, err
}

// keep ends that others send: the handler is about to return.
func (p *push) keep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byHandler = true
}

// pushTurn is how many times a watch is looked at before it is another's turn.
const pushTurn = 8

// send sends what there is, as far as that goes without waiting, and reports whether there may be
// more. buf is its caller's to use.
func (p *push) send(buf *[]byte) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range pushTurn {
		if p.byHandler {
			return false
		}
		events, err := p.watcher.Poll()
		if err != nil {
			p.err = err
			p.wakeLocked(nil, nil)
			return false
		}
		if len(events) == 0 {
			return false
		}
		p.sendLocked(events, buf)
	}
	return true
}

func (p *push) sendLocked(events []store.Event, buf *[]byte) {
	for len(events) > 0 {
		frames, n, err := p.enc.frames(buf, events)
		if err != nil {
			p.enc.log(err)
			p.err = context.Canceled // nothing more can be told
			p.wakeLocked(nil, nil)
			return
		}
		events = events[n:]
		switch sent, err := p.to.TrySend(frames); {
		case err != nil, sent == streams.Partly: // the handler finds out what is wrong
			p.wakeLocked(nil, events)
			return
		case sent == streams.Nothing:
			p.wakeLocked(append([]byte(nil), frames...), events)
			return
		}
	}
}

// wakeLocked gives the watch to the handler.
func (p *push) wakeLocked(left []byte, next []store.Event) {
	p.byHandler, p.left, p.next = true, left, next
	p.awake <- struct{}{} // it sleeps, and is told once
}

// writer sends by a stream. It implements io.Writer.
type writer struct {
	ctx context.Context
	to  *streams.Stream
}

// Write implements io.Writer.
func (w writer) Write(b []byte) (int, error) {
	if err := w.to.Send(w.ctx, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// pushes are the watches that have something to be sent. As many goroutines serve them as
// there are processors, while there are any: each sends what a watch has without being
// woken for it.
type pushes struct {
	processors int

	mu     sync.Mutex
	queue  []*push
	serve  int // goroutines
	behind int // of queue: what has been taken from its front
}

func newPushes() pushes { return pushes{processors: runtime.GOMAXPROCS(0)} }

// pushShare is how many watches wait before another goroutine serves them.
const pushShare = 32

// add puts a watch into the queue. It waits for nothing.
func (q *pushes) add(p *push) {
	if p.queued.Swap(true) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.behind > len(q.queue)/2 { // also a queue that is never empty stays small
		q.queue = slices.Delete(q.queue, 0, q.behind)
		q.behind = 0
	}
	q.queue = append(q.queue, p)
	if q.serve < q.processors && len(q.queue)-q.behind > q.serve*pushShare {
		q.serve++
		go q.work() // until the queue is empty; what it sends does not wait
	}
}

func (q *pushes) work() {
	var buf []byte
	for p := q.take(); p != nil; p = q.take() {
		p.queued.Store(false) // before it is looked at
		if p.send(&buf) {
			q.add(p)
		}
	}
}

// take returns the first of the queue. If there is none, the goroutine that asks is no
// longer counted.
func (q *pushes) take() *push {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.behind == len(q.queue) {
		q.queue, q.behind = q.queue[:0], 0
		q.serve--
		return nil
	}
	p := q.queue[q.behind]
	q.queue[q.behind] = nil
	q.behind++
	return p
}
