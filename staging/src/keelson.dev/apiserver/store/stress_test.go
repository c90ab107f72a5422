// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
)

// TestConcurrentWriters increments numbers in shared objects through two servers on one key-value
// store. It checks that no increment is lost, and that the state that a watcher of either server
// collects equals the stored one.
func TestConcurrentWriters(t *testing.T) {
	onEach(t, func(t *testing.T, e *env) {
		other, stop := boot(t, e.kv, e.backend.clock, "/registry")
		defer stop()
		const objects, writers, each = 3, 6, 30
		servers := []*Store{e.store, other.store}
		for i := range objects {
			create(t, e.store, newThing("ns", fmt.Sprintf("t%d", i)))
		}
		replicas := make([]*replica, 4)
		for i := range replicas {
			replicas[i] = &replica{w: watchAll(t, servers[i%2], WatchOptions{ResourceVersion: "0"}), seen: map[string]*Record{}}
		}
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				for n := range each {
					update(t, servers[i%2], fmt.Sprintf("ns/t%d", (i+n)%objects), countUp)
				}
			})
		}
		wg.Wait()
		page, err := e.store.List(patient(t), ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, r := range page.Records {
			obj, err := r.Shared()
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.Atoi(obj.(*thing).Data)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		if sum != writers*each {
			t.Errorf("counted %d, want %d", sum, writers*each)
		}
		for i, r := range replicas {
			r.follow(t, writers*each)
			for _, want := range page.Records {
				if got := r.seen[want.Key]; got == nil || got.Revision != want.Revision ||
					string(got.Bytes()) != string(want.Bytes()) {
					t.Errorf("replica %d has %v of %s, want %v", i, got, want.Key, want)
				}
			}
		}
	})
}

func countUp(o *thing) {
	n, _ := strconv.Atoi(o.Data)
	o.Data = strconv.Itoa(n + 1)
}

// replica is the state that a watcher has collected from its events.
type replica struct {
	w       *watcher
	seen    map[string]*Record
	updates int
}

// follow reads events until the replica has seen the given number of updates.
func (r *replica) follow(t *testing.T, updates int) {
	t.Helper()
	var last int64
	for r.updates < updates {
		events, err := r.w.Next(patient(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Type == Modified {
				r.updates++
				if e.Revision <= last {
					t.Errorf("event at %d after %d", e.Revision, last)
				}
				last = e.Revision
			}
			r.seen[e.Record.Key] = e.Record
		}
	}
}

// TestUpdateSeesPresentState checks that Update passes fn the state that another server has just
// written.
func TestUpdateSeesPresentState(t *testing.T) {
	onEach(t, func(t *testing.T, e *env) {
		other, stop := boot(t, e.kv, e.backend.clock, "/registry")
		defer stop()
		create(t, e.store, newThing("ns", "t"))
		waitApplied(t, e.store)
		waitApplied(t, other.store)
		for n := range 50 {
			theirs := update(t, other.store, "ns/t", func(o *thing) { o.Data = fmt.Sprint(n) })
			// The update rejects every state except the one that the other server wrote, so it must
			// be called with that state, however old the cached one is.
			_, err := e.store.Update(t.Context(), "ns/t", func(_ context.Context, cur *Record) (Object, error) {
				if cur.Revision != theirs.Revision {
					return nil, fmt.Errorf("at %d, want %d", cur.Revision, theirs.Revision)
				}
				return cur.Object()
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestTTLOfUpdates checks that each update sets the TTL of the object again.
func TestTTLOfUpdates(t *testing.T) {
	kvs := &ttlRecorder{Store: newMemory(t)}
	e := run(t, kvs, clock.Real())
	s := New(Config{
		Backend: e.backend, Prefix: "passing", GroupResource: things, Codec: thingCodec{}, Attrs: thingAttrs,
		TTL: func(obj Object) int64 { return int64(len(obj.(*thing).Data)) },
	})
	if _, err := s.Create(t.Context(), "ns/t", newThing("ns", "t"), 60); err != nil {
		t.Fatal(err)
	}
	update(t, s, "ns/t", func(o *thing) { o.Data = "xxx" })
	update(t, s, "ns/t", func(o *thing) { o.Data = "" })
	if got, want := kvs.ttls, []int64{60, 3, 0}; !slices.Equal(got, want) {
		t.Errorf("TTLs %v, want %v", got, want)
	}
}

type ttlRecorder struct {
	kv.Store
	ttls []int64
}

func (r *ttlRecorder) Put(ctx context.Context, key string, value []byte, expect, ttl int64,
	conditions ...kv.Unchanged) (kv.WriteResult, error) {
	r.ttls = append(r.ttls, ttl)
	return r.Store.Put(ctx, key, value, expect, ttl, conditions...)
}

// TestLostAnswer simulates that the response to a successful write is lost. The update must return
// an error. It must not call fn again, which would then see the result of the lost write.
func TestLostAnswer(t *testing.T) {
	for name, restarted := range map[string]bool{"state from the cache": false, "state from the store": true} {
		t.Run(name, func(t *testing.T) {
			kvs := &forgetful{Store: newMemory(t)}
			e := run(t, kvs, clock.Real())
			before := create(t, e.store, newThing("ns", "t"))
			waitApplied(t, e.store)
			s := e.store
			if restarted {
				other, stop := boot(t, kvs, clock.Real(), "/registry")
				defer stop()
				s = other.store
			}
			kvs.lose = errors.New("connection lost")
			tries := 0
			_, err := s.Update(t.Context(), "ns/t", func(_ context.Context, cur *Record) (Object, error) {
				tries++
				if cur.Revision != before.Revision {
					return nil, errors.New("conflict")
				}
				obj, err := cur.Object()
				if err == nil {
					obj.(*thing).Data = "x"
				}
				return obj, err
			})
			if err == nil || !strings.Contains(err.Error(), "connection lost") || tries != 1 {
				t.Errorf("%d tries: %v", tries, err)
			}
		})
	}
}

// forgetful is a key-value store that can lose results: if lose is set, Put makes the write but
// returns lose.
type forgetful struct {
	kv.Store
	lose error
}

func (f *forgetful) Put(ctx context.Context, key string, value []byte, expect, ttl int64,
	conditions ...kv.Unchanged) (kv.WriteResult, error) {
	res, err := f.Store.Put(ctx, key, value, expect, ttl, conditions...)
	if f.lose != nil {
		return kv.WriteResult{}, f.lose
	}
	return res, err
}

// TestOwnStateIsKnown changes an object repeatedly while the watch delivers no events. It checks
// that the server starts each write from the state that it wrote last, so that no write fails.
func TestOwnStateIsKnown(t *testing.T) {
	kvs := &lateWatches{Store: newMemory(t)}
	e := run(t, kvs, clock.Real())
	create(t, e.store, newThing("ns", "t"))
	waitApplied(t, e.store)
	kvs.late.Lock()
	defer kvs.late.Unlock()
	update(t, e.store, "ns/t", func(o *thing) { o.Data = "x" })
	marked := update(t, e.store, "ns/t", func(o *thing) { o.Data = "y" })
	last, err := e.store.Delete(t.Context(), "ns/t", func(cur *Record) error {
		if cur.Revision != marked.Revision {
			t.Errorf("deletion is shown revision %d, want %d", cur.Revision, marked.Revision)
		}
		return nil
	})
	if err != nil || !bytes.Equal(last.Bytes(), marked.Bytes()) {
		t.Errorf("deleted %v, error %v", last, err)
	}
	if n := kvs.missed.Load(); n != 0 {
		t.Errorf("%d writes on an old state", n)
	}
}

// lateWatches is a key-value store that delays the events of watches while it is locked, and counts
// the writes that expected a wrong revision.
type lateWatches struct {
	kv.Store
	late   sync.RWMutex
	missed atomic.Int64
}

type lateWatch struct {
	kv.Watch
	late *sync.RWMutex
}

func (l *lateWatches) Watch(ctx context.Context, prefix string, from int64) (kv.Watch, error) {
	w, err := l.Store.Watch(ctx, prefix, from)
	return &lateWatch{w, &l.late}, err
}

func (w *lateWatch) Next(ctx context.Context) (kv.Batch, error) {
	batch, err := w.Watch.Next(ctx)
	w.late.RLock()
	defer w.late.RUnlock()
	return batch, err
}

func (l *lateWatches) Put(ctx context.Context, key string, value []byte, expect, ttl int64,
	conditions ...kv.Unchanged) (kv.WriteResult, error) {
	return l.count(l.Store.Put(ctx, key, value, expect, ttl, conditions...))
}

func (l *lateWatches) Delete(ctx context.Context, key string, expect int64) (kv.WriteResult, error) {
	return l.count(l.Store.Delete(ctx, key, expect))
}

func (l *lateWatches) count(res kv.WriteResult, err error) (kv.WriteResult, error) {
	if err == nil && !res.OK {
		l.missed.Add(1)
	}
	return res, err
}
