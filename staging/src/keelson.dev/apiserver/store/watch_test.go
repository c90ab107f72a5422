// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	testingclock "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/memory"
)

// patience bounds how long a test waits. Only a failing test waits so long.
const patience = 3 * time.Minute

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func create(t testing.TB, s *Store, obj *thing) *Record {
	t.Helper()
	r, err := s.Create(t.Context(), obj.Namespace+"/"+obj.Name, obj, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func update(t testing.TB, s *Store, key string, change func(*thing)) *Record {
	t.Helper()
	r, err := s.Update(t.Context(), key, func(_ context.Context, cur *Record) (Object, error) {
		obj, err := cur.Object()
		if err == nil {
			change(obj.(*thing))
		}
		return obj, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func watchAll(t testing.TB, s *Store, opts WatchOptions) *watcher {
	t.Helper()
	w, err := s.Watch(patient(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w.(*watcher)
}

// waitApplied waits until the cache has applied the events of all writes.
func waitApplied(t testing.TB, s *Store) {
	t.Helper()
	if _, err := s.List(patient(t), ListOptions{Limit: 1}); err != nil {
		t.Fatal(err)
	}
}

func TestWatchManyChanges(t *testing.T) {
	e := run(t, newMemory(t), clock.Real())
	w := watchAll(t, e.store, WatchOptions{})
	const n = 3*watchBatch + 5
	for i := range n {
		create(t, e.store, newThing("ns", fmt.Sprintf("t%d", i)))
	}
	seen := 0
	for seen < n {
		events, err := w.Next(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			if want := fmt.Sprintf("ns/t%d", seen); ev.Record.Key != want || ev.Type != Added {
				t.Fatalf("event %d is %s %s", seen, ev.Type, ev.Record.Key)
			}
			seen++
		}
	}
	initial := watchAll(t, e.store, WatchOptions{ResourceVersion: "0"})
	for seen = 0; seen < n; {
		events, err := initial.Next(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		seen += len(events)
	}
	if seen != n {
		t.Errorf("initial state of %d objects came as %d", n, seen)
	}
}

func TestSlowWatcherIsCut(t *testing.T) {
	e, stop := boot(t, newMemory(t), clock.Real(), "/registry", func(b *Backend) {
		b.limits = windowLimits{min: 4, max: 4, bytes: 1 << 30}
	})
	defer stop()
	slow := watchAll(t, e.store, WatchOptions{})
	node := fields.OneTermEqualSelector("spec.nodeName", "n1")
	other := watchAll(t, e.store, WatchOptions{Predicate: Predicate{Fields: node}})
	for i := range 6 {
		create(t, e.store, newThing("ns", fmt.Sprintf("t%d", i)))
	}
	waitApplied(t, e.store)
	if _, err := slow.Next(patient(t)); !apierrors.IsResourceExpired(err) {
		t.Errorf("slow watcher: %v", err)
	}
	// The other watcher does not select the changes so far, so it must not have expired.
	on := newThing("ns", "on-node")
	on.Node = "n1"
	create(t, e.store, on)
	events, err := other.Next(patient(t))
	if err != nil || len(events) != 1 || events[0].Record.Key != "ns/on-node" {
		t.Errorf("watcher with nothing to do: %v, %v", events, err)
	}
}

func TestWatchersWakeOnlyForWhatMayConcernThem(t *testing.T) {
	e := run(t, newMemory(t), clock.Real())
	at := func(node string) Predicate {
		return Predicate{Fields: fields.OneTermEqualSelector("spec.nodeName", node)}
	}
	watchers := map[string]*watcher{}
	for name, p := range map[string]Predicate{
		"all": {}, "n1": at("n1"), "n2": at("n2"), "n3": at("n3"), "ns": {Namespace: "ns"}, "other": {Namespace: "other"},
		"t": {Namespace: "ns", Name: "t"}, "u": {Fields: fields.OneTermEqualSelector("metadata.name", "u")},
	} {
		watchers[name] = watchAll(t, e.store, WatchOptions{Predicate: p})
	}
	expect := func(what string, names ...string) {
		t.Helper()
		waitApplied(t, e.store)
		want := map[string]bool{}
		for _, n := range names {
			want[n] = true
		}
		for name, w := range watchers {
			e.store.cache.mu.Lock()
			pending := w.pending
			w.pending = false
			e.store.cache.mu.Unlock()
			if pending != want[name] {
				t.Errorf("%s: watcher %s woken: %t", what, name, pending)
			}
		}
	}
	obj := newThing("ns", "t")
	obj.Node = "n1"
	create(t, e.store, obj)
	expect("create", "all", "n1", "ns", "t")
	update(t, e.store, "ns/t", func(o *thing) { o.Node = "n2" })
	expect("move", "all", "n1", "n2", "ns", "t")
	update(t, e.store, "ns/t", func(o *thing) { o.Data = "x" })
	expect("update", "all", "n2", "ns", "t")
	if _, err := e.store.Delete(t.Context(), "ns/t", nil); err != nil {
		t.Fatal(err)
	}
	expect("delete", "all", "n2", "ns", "t")
	for _, w := range watchers {
		w.Stop()
	}
	s := &e.store.cache.watchers
	if s.count != 0 || len(s.all)+len(s.byName)+len(s.byNamespace)+len(s.byField["spec.nodeName"]) != 0 {
		t.Errorf("stopped watchers are held: %+v", s)
	}
}

// stepUntil advances the clock by d repeatedly until it receives from the channel done.
func stepUntil[T any](clk *testingclock.FakeClock, d time.Duration, done <-chan T) T {
	for {
		select {
		case v := <-done:
			return v
		default:
			clk.Step(d)
			runtime.Gosched()
		}
	}
}

func TestBookmarks(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Now())
	m := memory.New(clk)
	e := run(t, m, clk)
	yes := true
	w := watchAll(t, e.store, WatchOptions{AllowBookmarks: true, SendInitialEvents: &yes,
		Match: metav1.ResourceVersionMatchNotOlderThan})
	events, err := w.Next(patient(t))
	if err != nil || len(events) != 1 || !events[0].InitialEventsEnd || events[0].Type != Bookmark {
		t.Fatalf("initial events: %+v, %v", events, err)
	}
	// This write to a key outside of the resource increases the revision, and the next bookmark
	// must have this revision.
	res, err := m.Put(t.Context(), "/registry/others/x", nil, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	waitApplied(t, e.store)
	clk.Step(bookmarkEvery)
	events, err = w.Next(patient(t))
	if err != nil || len(events) != 1 || events[0].Type != Bookmark || events[0].Revision != res.Revision ||
		events[0].InitialEventsEnd {
		t.Fatalf("after a minute: %+v, %v", events, err)
	}
	resumed := watchAll(t, e.store, WatchOptions{ResourceVersion: formatRevision(events[0].Revision)})
	create(t, e.store, newThing("ns", "t"))
	for _, w := range []*watcher{w, resumed} {
		if events, err := w.Next(patient(t)); err != nil || len(events) != 1 || events[0].Type != Added {
			t.Errorf("after the bookmark: %+v, %v", events, err)
		}
	}
}

func TestLastBookmarkComesBeforeTheDeadline(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Now())
	e := run(t, memory.New(clk), clk)
	var watchers []Watcher
	for range 2 {
		w, err := e.store.Watch(t.Context(), WatchOptions{AllowBookmarks: true, Timeout: bookmarkEvery / 2})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		watchers = append(watchers, w)
		if len(watchers) == 1 {
			create(t, e.store, newThing("ns", "t"))
			waitApplied(t, e.store)
		}
	}
	clk.Step(bookmarkEvery/2 - bookmarkLead)
	for _, want := range []EventType{Added, Bookmark} {
		if events, err := watchers[0].Next(patient(t)); err != nil || len(events) != 1 || events[0].Type != want {
			t.Errorf("before the deadline: %+v, %v, want %s", events, err, want)
		}
	}
	// Nothing has changed since the second watch started, so it gets no bookmark before its
	// deadline.
	if events, err := watchers[1].Next(patient(t)); err != nil || len(events) != 1 || events[0].Type != Added {
		t.Errorf("the beginning: %+v, %v", events, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if events, err := watchers[1].Next(ctx); err == nil {
		t.Errorf("before the deadline: %+v, want nothing", events)
	}
}

func TestFutureRevision(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Now())
	e := run(t, memory.New(clk), clk)
	create(t, e.store, newThing("ns", "t"))
	waitApplied(t, e.store)
	done := make(chan error, 1)
	go func() {
		_, err := e.store.Get(patient(t), "ns/t", "1000")
		done <- err
	}()
	// Advance the clock repeatedly: runProgress may have a timer that fires before that of the read.
	err := stepUntil(clk, barrierTimeout, done)
	if !isTooLarge(err) || err.Error() != "Timeout: Too large resource version: 1000, current: 2" {
		t.Errorf("Get at a future revision: %v", err)
	}
	if s, ok := apierrors.SuggestsClientDelay(err); !ok || s != 1 {
		t.Errorf("suggested delay %d, %t", s, ok)
	}
	// A watch may start at a future revision. It then delivers nothing up to that revision.
	w := watchAll(t, e.store, WatchOptions{ResourceVersion: "4"})
	create(t, e.store, newThing("ns", "u"))
	create(t, e.store, newThing("ns", "v"))
	create(t, e.store, newThing("ns", "w"))
	if events, err := w.Next(patient(t)); err != nil || events[0].Record.Key != "ns/w" {
		t.Errorf("watch from the future: %+v, %v", events, err)
	}
}

// brokenWatches is a key-value store whose watches the test can make fail.
type brokenWatches struct {
	kv.Store
	mu     sync.Mutex
	open   []*brokenWatch
	opened chan struct{} // receives when a watch is opened; may be nil
}

type brokenWatch struct {
	kv.Watch
	broken context.Context // when this context ends, Next returns its cause
	fail   context.CancelCauseFunc
}

func (b *brokenWatches) Watch(ctx context.Context, prefix string, from int64) (kv.Watch, error) {
	w, err := b.Store.Watch(ctx, prefix, from)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	bw := &brokenWatch{Watch: w}
	bw.broken, bw.fail = context.WithCancelCause(ctx)
	b.open = append(b.open, bw)
	select {
	case b.opened <- struct{}{}:
	default:
	}
	return bw, nil
}

func (w *brokenWatch) Next(ctx context.Context) (kv.Batch, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.broken, cancel)()
	batch, err := w.Watch.Next(ctx)
	if cause := context.Cause(w.broken); err != nil && cause != nil {
		return batch, cause
	}
	return batch, err
}

func (w *brokenWatch) Stop() {
	w.fail(context.Canceled)
	w.Watch.Stop()
}

func (b *brokenWatches) breakAll(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.open {
		w.fail(err)
	}
	b.open = nil
}

func TestLostWatch(t *testing.T) {
	t.Run("compacted", func(t *testing.T) {
		kvs := &brokenWatches{Store: newMemory(t)}
		e := run(t, kvs, clock.Real())
		w := watchAll(t, e.store, WatchOptions{})
		waitApplied(t, e.store)
		kvs.breakAll(kv.ErrCompacted)
		if _, err := w.Next(patient(t)); !apierrors.IsResourceExpired(err) {
			t.Errorf("watcher after a lost watch: %v", err)
		}
		create(t, e.store, newThing("ns", "after"))
		page, err := e.store.List(patient(t), ListOptions{})
		if err != nil || len(page.Records) != 1 {
			t.Errorf("list after a lost watch: %+v, %v", page, err)
		}
	})
	t.Run("resumable", func(t *testing.T) {
		clk := testingclock.NewFakeClock(time.Now())
		kvs := &brokenWatches{Store: memory.New(clk), opened: make(chan struct{}, 1)}
		e := run(t, kvs, clk)
		w := watchAll(t, e.store, WatchOptions{})
		waitApplied(t, e.store)
		<-kvs.opened
		kvs.breakAll(fmt.Errorf("connection lost"))
		create(t, e.store, newThing("ns", "meanwhile"))
		stepUntil(clk, followRetry, kvs.opened)
		if events, err := w.Next(patient(t)); err != nil || events[0].Record.Key != "ns/meanwhile" {
			t.Errorf("watcher after a resumed watch: %+v, %v", events, err)
		}
	})
}

// slowWatches is a key-value store whose watches deliver nothing until the test releases them.
type slowWatches struct {
	kv.Store
	let  chan struct{}
	read chan string // receives the prefix of each Range
}

type slowWatch struct {
	kv.Watch
	let chan struct{}
}

func (s *slowWatches) Watch(ctx context.Context, prefix string, from int64) (kv.Watch, error) {
	w, err := s.Store.Watch(ctx, prefix, from)
	return &slowWatch{w, s.let}, err
}

func (w *slowWatch) Next(ctx context.Context) (kv.Batch, error) {
	select {
	case <-w.let:
		return w.Watch.Next(ctx)
	case <-ctx.Done():
		return kv.Batch{}, ctx.Err()
	}
}

func (s *slowWatches) Range(ctx context.Context, o kv.RangeOptions) (kv.RangeResult, error) {
	out, err := s.Store.Range(ctx, o)
	select {
	case s.read <- o.Prefix:
	default:
	}
	return out, err
}

// TestLoadBesideReplay checks that a starting server reads a resource while its watch still replays
// past events, and that the cache becomes ready only when the watch has delivered all of them.
func TestLoadBesideReplay(t *testing.T) {
	m := newMemory(t)
	before, stop := boot(t, m, clock.Real(), "/registry")
	for i := range 3 {
		create(t, before.store, newThing("ns", fmt.Sprint(i)))
	}
	stop()
	kvs := &slowWatches{Store: m, let: make(chan struct{}), read: make(chan string, 1)}
	e := run(t, kvs, clock.Real())
	listed := make(chan int, 1)
	go func() {
		page, err := e.store.List(t.Context(), ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Error(err)
			page = &Page{}
		}
		listed <- len(page.Records)
	}()
	if prefix := <-kvs.read; !strings.HasSuffix(prefix, "/things/") {
		t.Errorf("read %q first", prefix)
	}
	for !e.backend.barrier.anyWaiting() {
		select {
		case n := <-listed:
			t.Fatalf("%d objects of the past were served", n)
		default:
			runtime.Gosched()
		}
	}
	close(kvs.let)
	if n := <-listed; n != 3 {
		t.Errorf("%d objects, want 3", n)
	}
}

func TestCloseEndsWatchers(t *testing.T) {
	e := run(t, newMemory(t), clock.Real())
	w := watchAll(t, e.store, WatchOptions{})
	e.store.Close()
	if _, err := w.Next(patient(t)); !apierrors.IsResourceExpired(err) {
		t.Errorf("watcher of a closed store: %v", err)
	}
	if _, err := e.store.List(patient(t), ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("list of a closed store: %v", err)
	}
	e.store.Close()
}

// countingCodec counts calls of Decode.
type countingCodec struct {
	thingCodec
	decoded *atomic.Int64
}

func (c countingCodec) Decode(data []byte, rev int64) (Object, error) {
	c.decoded.Add(1)
	return c.thingCodec.Decode(data, rev)
}

func TestOwnWritesAreNotDecoded(t *testing.T) {
	e := run(t, newMemory(t), clock.Real())
	codec := countingCodec{decoded: &atomic.Int64{}}
	s := New(Config{Backend: e.backend, Prefix: "counted", GroupResource: things, Codec: codec, Attrs: thingAttrs})
	w := watchAll(t, s, WatchOptions{})
	wrote := create(t, s, newThing("ns", "t"))
	waitApplied(t, s)
	wrote2, err := s.Update(t.Context(), "ns/t", func(_ context.Context, cur *Record) (Object, error) {
		obj := newThing("ns", "t")
		obj.Data = "changed"
		return obj, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	waitApplied(t, s)
	if _, err := s.Delete(t.Context(), "ns/t", nil); err != nil {
		t.Fatal(err)
	}
	var got []*Record
	for len(got) < 3 {
		events, err := w.Next(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			got = append(got, ev.Record)
		}
	}
	if got[0] != wrote || got[1] != wrote2 {
		t.Error("the writer and the watcher have different records")
	}
	if n := codec.decoded.Load(); n != 0 {
		t.Errorf("%d decodings", n)
	}
	if obj, err := got[1].Shared(); err != nil || obj.GetResourceVersion() != formatRevision(wrote2.Revision) ||
		codec.decoded.Load() != 0 {
		t.Errorf("decoded form of an own write: %v, %v", obj, err)
	}
	if len(s.cache.pending.byKey) != 0 {
		t.Errorf("writes still pending: %v", s.cache.pending.byKey)
	}
}
