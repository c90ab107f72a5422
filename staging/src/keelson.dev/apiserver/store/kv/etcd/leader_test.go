// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	kclock "k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/etcd"
)

// fate is what happens to a transaction when etcd's leader changes.
type fate int

const (
	answered   fate = iota // nothing special
	dropped                // it does not happen
	unanswered             // it happens, but the answer does not arrive
	late                   // it happens after the client has given up
	fates
	heldBack // it happens when the new leader is there
)

// electing is the client of an etcd in which the leader often changes.
type electing struct {
	pb.KVClient
	fate func() fate
	term atomic.Uint64
	late sync.WaitGroup
	hold chan struct{} // if it is not nil, late transactions wait until it is closed
	// held waits until a transaction is sent to the new leader that the member has held back.
	held func(context.Context)
}

// Range returns the response of a linearizable read, which does not fail when the leader changes.
func (e *electing) Range(ctx context.Context, in *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	resp, err := e.KVClient.Range(ctx, in, opts...)
	if err == nil {
		resp.Header.RaftTerm = e.term.Load()
	}
	return resp, err
}

func (e *electing) Txn(ctx context.Context, in *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	end := e.fate()
	if end == heldBack {
		e.term.Add(1)
		e.held(ctx)
	}
	if end == answered || end == heldBack {
		resp, err := e.KVClient.Txn(context.WithoutCancel(ctx), in, opts...)
		if err == nil {
			resp.Header.RaftTerm = e.term.Load()
		}
		return resp, cmp.Or(ctx.Err(), err)
	}
	if end == unanswered {
		if _, err := e.KVClient.Txn(context.WithoutCancel(ctx), in, opts...); err != nil {
			return nil, err
		}
	}
	e.term.Add(1)
	<-ctx.Done()
	if end == late {
		e.late.Go(func() {
			if e.hold != nil {
				<-e.hold
			}
			_, _ = e.KVClient.Txn(context.WithoutCancel(ctx), in, opts...)
		})
	}
	return nil, ctx.Err()
}

// fakeClock is a fake clock that does not wait for the functions that it calls.
type fakeClock struct{ *testingclock.FakeClock }

func (c fakeClock) AfterFunc(d time.Duration, f func()) kclock.Timer {
	return c.FakeClock.AfterFunc(d, func() { go f() })
}

// electingStore returns a store on an etcd whose leader changes.
func electingStore(t *testing.T, clk clock.Clock, of func() fate) (*etcd.Store, *electing) {
	t.Helper()
	server, url := serve(t)
	t.Cleanup(server.Close)
	s, err := etcd.Dial(etcd.External{Endpoints: []string{url}, Clock: clk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	e := &electing{fate: of}
	e.term.Store(1)
	etcd.Interpose(s, func(c pb.KVClient) pb.KVClient {
		e.KVClient = c
		return e
	})
	if _, err := s.Revision(t.Context()); err != nil { // shows the store the first term
		t.Fatal(err)
	}
	return s, e
}

// elections returns a store on an etcd whose leader changes, with a clock that runs fast.
func elections(t *testing.T, of func() fate) (*etcd.Store, *electing) {
	t.Helper()
	clk := fakeClock{testingclock.NewFakeClock(time.Now())}
	s, e := electingStore(t, clk, of)
	ended := make(chan struct{})
	var stepping sync.WaitGroup
	stepping.Go(func() {
		for ticks := time.Tick(time.Millisecond); ; <-ticks {
			select {
			case <-ended:
				return
			default:
				clk.Step(100 * time.Millisecond)
			}
		}
	})
	t.Cleanup(func() {
		close(ended)
		stepping.Wait()
	})
	return s, e
}

// TestLostWrites checks the results of single writes that are lost.
func TestLostWrites(t *testing.T) {
	for name, end := range map[string]fate{"dropped": dropped, "unanswered": unanswered, "late": late} {
		t.Run(name, func(t *testing.T) {
			var next atomic.Int64
			s, e := elections(t, func() fate { return fate(next.Swap(int64(answered))) })
			defer e.late.Wait()
			lose := func() { next.Store(int64(end)) }
			lose()
			created, err := s.Put(t.Context(), "/a", []byte("1"), 0, 0)
			if err != nil || !created.OK {
				t.Fatal("creation:", created, err)
			}
			lose()
			if res, err := s.Put(t.Context(), "/a", []byte("2"), 0, 0); err != nil || res.OK || res.Current == nil {
				t.Error("creation of a key that exists:", res, err)
			}
			lose()
			changed, err := s.Put(t.Context(), "/a", []byte("3"), created.Revision, 0)
			if end == unanswered && err == nil {
				t.Error("the result of a change that was not answered is known:", changed)
			}
			if end != dropped && errors.Is(err, rpctypes.ErrTimeout) {
				item, _, err := s.Get(t.Context(), "/a")
				if err != nil {
					t.Fatal(err)
				}
				changed = kv.WriteResult{OK: true, Revision: item.ModRevision}
			} else if err != nil || !changed.OK {
				t.Fatal("change:", changed, err)
			}
			lose()
			res, err := s.Delete(t.Context(), "/a", changed.Revision)
			if end == unanswered && err == nil || !res.OK && (end == dropped || !errors.Is(err, rpctypes.ErrTimeout)) {
				t.Error("deletion:", res, err)
			}
			lose()
			if _, err := s.Put(t.Context(), "/event", nil, 0, 600); err != nil {
				t.Error("creation with a lease:", err)
			}
		})
	}
}

// TestCreatedOnce checks that an object that was created without an answer, and deleted, is not created again.
func TestCreatedOnce(t *testing.T) {
	created := make(chan kv.Item, 1)
	var s *etcd.Store
	s, e := elections(t, onlyFirst(unanswered))
	e.KVClient = &deleting{KVClient: e.KVClient, created: created, store: func() *etcd.Store { return s }}
	res, err := s.Put(t.Context(), "/a", []byte("id"), 0, 0)
	if err != nil || !res.OK || res.Revision != (<-created).ModRevision {
		t.Errorf("created and deleted by others: %+v, %v", res, err)
	}
	if item, _, err := s.Get(t.Context(), "/a"); item != nil || err != nil {
		t.Errorf("the object exists again: %+v, %v", item, err)
	}
}

// TestNotCreatedLater checks that a lost creation does not happen after the object was created and deleted.
func TestNotCreatedLater(t *testing.T) {
	s, e := elections(t, onlyFirst(late))
	e.hold = make(chan struct{})
	res, err := s.Put(t.Context(), "/a", []byte("id"), 0, 0)
	if err != nil || !res.OK {
		t.Fatalf("create: %+v, %v", res, err)
	}
	if res, err := s.Delete(t.Context(), "/a", res.Revision); err != nil || !res.OK {
		t.Fatalf("delete: %+v, %v", res, err)
	}
	close(e.hold)
	e.late.Wait()
	if item, _, err := s.Get(t.Context(), "/a"); item != nil || err != nil {
		t.Errorf("the object exists again: %+v, %v", item, err)
	}
}

// TestTwoServers checks that the creations of a second API server do not fail because the first one has repeated one,
// and that a condition which does not hold is not taken for that.
func TestTwoServers(t *testing.T) {
	s, _ := elections(t, onlyFirst(dropped))
	second, err := etcd.Dial(etcd.External{
		Endpoints: etcd.Client(s).Endpoints(), Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, second)
	for i, by := range []*etcd.Store{second, s, second, s} { // the first creation of s is lost
		key := fmt.Sprint("/", i)
		if res, err := by.Put(t.Context(), key, []byte("id"), 0, 0); err != nil || !res.OK {
			t.Errorf("create %s: %+v, %v", key, res, err)
		}
		res, err := by.Put(t.Context(), key+"/child", []byte("id"), 0, 0, kv.Unchanged{Key: "/none", Revision: 1})
		if err != nil || res.OK || res.Current != nil {
			t.Errorf("create a child of %s without its condition: %+v, %v", key, res, err)
		}
	}
}

// TestOtherWatches checks that the search for a lost creation does not concern other watches. If each of many
// searches made each of them deliver its progress, that would take long.
func TestOtherWatches(t *testing.T) {
	s, _ := elections(t, onlyFirst(dropped))
	other, err := s.Watch(t.Context(), "/other/", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Stop()
	for _, key := range []string{"/a", "/other/a"} {
		if res, err := s.Put(t.Context(), key, []byte("id"), 0, 0); err != nil || !res.OK {
			t.Fatalf("create: %+v, %v", res, err)
		}
	}
	if batch, err := other.Next(t.Context()); err != nil || len(batch.Events) != 1 {
		t.Errorf("first batch of another watch: %+v, %v", batch, err)
	}
}

// TestHeldBack checks that a change is not lost that etcd has held back while it had no leader.
func TestHeldBack(t *testing.T) {
	clk := fakeClock{testingclock.NewFakeClock(time.Now())}
	var next atomic.Int64
	s, e := electingStore(t, clk, func() fate { return fate(next.Swap(int64(answered))) })
	e.held = func(ctx context.Context) {
		clk.Step(time.Second) // the store looks for the leader
		for ctx.Err() == nil && !clk.HasWaiters() {
			runtime.Gosched()
		}
	}
	created, err := s.Put(t.Context(), "/a", []byte("1"), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	next.Store(int64(heldBack))
	if res, err := s.Put(t.Context(), "/a", []byte("2"), created.Revision, 0); err != nil || !res.OK {
		t.Errorf("change: %+v, %v", res, err)
	}
}

// onlyFirst returns the fate of the first transaction once. All others are answered.
func onlyFirst(f fate) func() fate {
	var next atomic.Int64
	next.Store(int64(f))
	return func() fate { return fate(next.Swap(int64(answered))) }
}

// deleting deletes the first key that is created.
type deleting struct {
	pb.KVClient
	store   func() *etcd.Store
	created chan kv.Item
	done    atomic.Bool
}

func (d *deleting) Txn(ctx context.Context, in *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	resp, err := d.KVClient.Txn(ctx, in, opts...)
	if err != nil || !resp.Succeeded || !d.done.CompareAndSwap(false, true) {
		return resp, err
	}
	item, _, err := d.store().Get(ctx, "/a")
	if err != nil {
		return nil, err
	}
	d.created <- *item
	if res, err := d.store().Delete(ctx, "/a", item.ModRevision); err != nil || !res.OK {
		return nil, fmt.Errorf("delete: %+v, %w", res, err)
	}
	return resp, nil
}

// TestElections lets concurrent clients write while the leader changes, and compares the results that they got with
// the history: each write that was acknowledged has happened once, and a write that was refused has not.
func TestElections(t *testing.T) {
	const clients, rounds, names = 8, 60, 4
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	s, e := elections(t, func() fate {
		mu.Lock()
		defer mu.Unlock()
		return fate(max(0, random.IntN(int(fates)*3)-2*int(fates)))
	})
	m := &model{store: s, outcomes: map[string]outcome{}}
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for r := range rounds {
				id := fmt.Sprint(c, "-", r)
				if err := m.live(t.Context(), fmt.Sprint("/object/", (c+r)%names), id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	e.late.Wait()
	m.check(t)
}

type outcome int

const (
	refused outcome = iota
	acknowledged
	unknown
)

// model has what the clients know.
type model struct {
	store *etcd.Store

	mu       sync.Mutex
	outcomes map[string]outcome // by value
}

// live creates an object, changes it, and deletes it, as far as others do not do that first. If the object exists,
// live deletes it. Each value is written by one client.
func (m *model) live(ctx context.Context, key, id string) error {
	res, err := m.put(ctx, key, id, 0)
	if err == nil && res.Current != nil {
		_, err = m.store.Delete(ctx, key, res.Current.ModRevision)
		return unexpected(err)
	}
	if err != nil || !res.OK {
		return err
	}
	if res, err = m.put(ctx, key, id+" changed", res.Revision); err != nil || !res.OK {
		return err
	}
	_, err = m.store.Delete(ctx, key, res.Revision)
	return unexpected(err)
}

// unexpected returns the errors that a client does not expect.
func unexpected(err error) error {
	if errors.Is(err, rpctypes.ErrTimeout) {
		return nil
	}
	return err
}

func (m *model) put(ctx context.Context, key, value string, expect int64) (kv.WriteResult, error) {
	res, err := m.store.Put(ctx, key, []byte(value), expect, 0)
	out := refused
	switch {
	case errors.Is(err, rpctypes.ErrTimeout):
		out, err = unknown, nil
	case res.OK:
		out = acknowledged
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outcomes[value] = out
	return res, err
}

// check compares what the clients know with the history.
func (m *model) check(t *testing.T) {
	t.Helper()
	last, err := m.store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.store.Watch(t.Context(), "/object/", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	times, count := map[string]int{}, map[outcome]int{}
	for done := int64(0); done < last; {
		if err := w.RequestProgress(t.Context()); err != nil {
			t.Fatal(err)
		}
		batch, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range batch.Events {
			if !e.Deleted {
				times[string(e.Value)]++
			}
		}
		done = batch.Revision
	}
	for value, out := range m.outcomes {
		count[out]++
		if n := times[value]; out == acknowledged && n != 1 || out == refused && n != 0 || n > 1 {
			t.Errorf("%q was written %d times, and its outcome is %d", value, n, out)
		}
	}
	t.Logf("%d writes refused, %d acknowledged, %d with unknown outcome", count[refused], count[acknowledged],
		count[unknown])
	if count[acknowledged] == 0 || count[refused] == 0 {
		t.Error("the clients did not compete")
	}
}
