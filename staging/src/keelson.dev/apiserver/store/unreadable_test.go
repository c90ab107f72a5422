// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	testingclock "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/memory"
)

// sealedStore is a key-value store that cannot decrypt the values of keys that contain a text.
type sealedStore struct {
	kv.Store
	text atomic.Pointer[string] // nil if all values can be decrypted
}

type sealedWatch struct {
	kv.Watch
	s *sealedStore
}

func (s *sealedStore) seal(text string) { s.text.Store(&text) }

func (s *sealedStore) open(it *kv.Item) {
	if text := s.text.Load(); text != nil && strings.Contains(it.Key, *text) {
		it.Value, it.Err = nil, fmt.Errorf("%w: no key", kv.ErrUnreadable)
	}
}

func (s *sealedStore) Get(ctx context.Context, key string) (*kv.Item, int64, error) {
	it, rev, err := s.Store.Get(ctx, key)
	if it != nil {
		opened := *it
		s.open(&opened)
		it = &opened
	}
	return it, rev, err
}

func (s *sealedStore) Range(ctx context.Context, o kv.RangeOptions) (kv.RangeResult, error) {
	res, err := s.Store.Range(ctx, o)
	for i := range res.Items {
		s.open(&res.Items[i])
	}
	return res, err
}

func (s *sealedStore) Watch(ctx context.Context, prefix string, from int64) (kv.Watch, error) {
	w, err := s.Store.Watch(ctx, prefix, from)
	return &sealedWatch{w, s}, err
}

func (w *sealedWatch) Next(ctx context.Context) (kv.Batch, error) {
	b, err := w.Watch.Next(ctx)
	b.Events = append([]kv.Event(nil), b.Events...)
	for i := range b.Events {
		if !b.Events[i].Deleted {
			w.s.open(&b.Events[i].Item)
		}
	}
	return b, err
}

// encrypted reports whether err is the error for an object that cannot be decrypted.
func encrypted(err error) bool {
	u := (*UnreadableError)(nil)
	return errors.As(err, &u) && u.Key == "ns/bad" && u.Encrypted() &&
		err.Error() == "data from the storage is not transformable revision=0: value cannot be read: no key"
}

// checkSealed checks the results of requests while the object ns/bad cannot be decrypted and ns/good can.
func checkSealed(t *testing.T, s *Store) {
	t.Helper()
	ctx := patient(t)
	if _, err := s.Get(ctx, "ns/bad", ""); !encrypted(err) {
		t.Errorf("get: %v", err)
	}
	if _, err := s.Get(ctx, "ns/good", ""); err != nil {
		t.Errorf("get of another object: %v", err)
	}
	page, err := s.List(ctx, ListOptions{})
	if err != nil || len(page.Records) != 2 || !encrypted(page.ReadError()) {
		t.Errorf("list: %+v, %v", page, err)
	}
	page, err = s.List(ctx, ListOptions{Predicate: Predicate{Namespace: "other"}})
	if err != nil || page.ReadError() != nil {
		t.Errorf("list of another namespace: %+v, %v", page, err)
	}
	fn := func(_ context.Context, cur *Record) (Object, error) { return cur.Object() }
	if _, err := s.Update(ctx, "ns/bad", fn); !encrypted(err) {
		t.Errorf("update: %v", err)
	}
	if _, err := s.Create(ctx, "ns/bad", newThing("ns", "bad"), 0); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create: %v", err)
	}
}

// TestUndecryptable checks the results of requests for an object that cannot be decrypted, at the
// start of a server and later. It checks that the cache has the object again once it can be decrypted.
func TestUndecryptable(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Now())
	kvs := &sealedStore{Store: memory.New(clk)}
	first, stop := boot(t, kvs, clk, "/registry")
	create(t, first.store, newThing("ns", "bad"))
	create(t, first.store, newThing("ns", "good"))
	stop()
	kvs.seal("bad")
	e := run(t, kvs, clk)
	checkSealed(t, e.store)
	page, err := e.store.List(patient(t), ListOptions{Predicate: Predicate{Namespace: "other"}})
	if err != nil {
		t.Fatal(err)
	}
	w := watchAll(t, e.store, WatchOptions{Predicate: Predicate{Namespace: "other"},
		ResourceVersion: formatRevision(page.Revision)})
	kvs.seal("nothing")
	ended := make(chan error, 1)
	go func() {
		_, err := w.Next(patient(t))
		ended <- err
	}()
	if err := stepUntil(clk, recoverInterval, ended); !apierrors.IsResourceExpired(err) {
		t.Errorf("watch from before the cache was loaded again: %v", err)
	}
	page, err = e.store.List(patient(t), ListOptions{})
	if err != nil || len(page.Records) != 2 || page.ReadError() != nil {
		t.Fatalf("after the recovery: %+v, %v", page, err)
	}

	kvs.seal("bad")
	current, _, err := kvs.Get(t.Context(), "/registry/things/ns/bad")
	if err != nil {
		t.Fatal(err)
	}
	if res, err := kvs.Put(t.Context(), current.Key, []byte("{}"), current.ModRevision, 0); err != nil || !res.OK {
		t.Fatal(res, err)
	}
	waitApplied(t, e.store)
	checkSealed(t, e.store)
}

// TestDeleteUndecryptable checks that DeleteCorrupt removes an object that cannot be decrypted.
func TestDeleteUndecryptable(t *testing.T) {
	kvs := &sealedStore{Store: newMemory(t)}
	e := run(t, kvs, clock.Real())
	create(t, e.store, newThing("ns", "bad"))
	ctx := patient(t)
	if err := e.store.DeleteCorrupt(ctx, "ns/bad", false); !errors.Is(err, ErrNotCorrupt) {
		t.Errorf("an object that can be read: %v", err)
	}
	kvs.seal("bad")
	for _, dryRun := range []bool{true, false} {
		if err := e.store.DeleteCorrupt(ctx, "ns/bad", dryRun); err != nil {
			t.Errorf("dry run %t: %v", dryRun, err)
		}
	}
	if _, err := e.store.Get(ctx, "ns/bad", ""); !apierrors.IsNotFound(err) {
		t.Errorf("after the deletion: %v", err)
	}
}

// TestRecheck checks that consistent reads of single objects, and only these, see that a cached object
// can no longer be decrypted.
func TestRecheck(t *testing.T) {
	kvs := &sealedStore{Store: newMemory(t)}
	var lost atomic.Bool
	e, stop := boot(t, kvs, clock.Real(), "/registry", func(b *Backend) { b.recheck = lost.Load })
	defer stop()
	create(t, e.store, newThing("ns", "bad"))
	waitApplied(t, e.store)
	kvs.seal("bad")
	lost.Store(true)
	ctx := patient(t)
	if _, err := e.store.Get(ctx, "ns/bad", ""); !encrypted(err) {
		t.Errorf("consistent read: %v", err)
	}
	if r, err := e.store.Get(ctx, "ns/bad", "0"); err != nil || r.Key != "ns/bad" {
		t.Errorf("read from the cache: %+v, %v", r, err)
	}
	if page, err := e.store.List(ctx, ListOptions{}); err != nil || len(page.Records) != 1 || page.ReadError() != nil {
		t.Errorf("list: %+v, %v", page, err)
	}
	if _, err := e.store.Get(ctx, "ns/absent", ""); !apierrors.IsNotFound(err) {
		t.Errorf("absent object: %v", err)
	}
}

// TestUnreadableChange checks that all watches end with a change that they cannot deliver, because the
// state before or after it cannot be read, and that later watches start after it.
func TestUnreadableChange(t *testing.T) {
	const key = "/registry/things/ns/bad"
	for name, write := range map[string]func(kvs *sealedStore, rev int64) (kv.WriteResult, error){
		"not decodable": func(kvs *sealedStore, rev int64) (kv.WriteResult, error) {
			return kvs.Put(context.Background(), key, []byte("{"), rev, 0)
		},
		"not decryptable": func(kvs *sealedStore, rev int64) (kv.WriteResult, error) {
			kvs.seal("bad")
			return kvs.Put(context.Background(), key, []byte("{}"), rev, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			kvs := &sealedStore{Store: newMemory(t)}
			e := run(t, kvs, clock.Real())
			good := create(t, e.store, newThing("ns", "bad"))
			waitApplied(t, e.store)
			elsewhere := WatchOptions{Predicate: Predicate{Namespace: "other"}, ResourceVersion: formatRevision(good.Revision)}
			change := func(what string, w Watcher, write func() (kv.WriteResult, error)) int64 {
				t.Helper()
				res, err := write()
				if err != nil || !res.OK {
					t.Fatal(res, err)
				}
				if _, err := w.Next(patient(t)); !apierrors.IsResourceExpired(err) {
					t.Errorf("%s: watch: %v", what, err)
				}
				if _, err := e.store.Watch(patient(t), elsewhere); !apierrors.IsResourceExpired(err) {
					t.Errorf("%s: watch from before: %v", what, err)
				}
				return res.Revision
			}
			rev := change("update", watchAll(t, e.store, elsewhere),
				func() (kv.WriteResult, error) { return write(kvs, good.Revision) })
			later := elsewhere
			later.ResourceVersion = formatRevision(rev)
			rev = change("deletion", watchAll(t, e.store, later),
				func() (kv.WriteResult, error) { return kvs.Delete(t.Context(), key, rev) })
			w := watchAll(t, e.store, WatchOptions{ResourceVersion: formatRevision(rev)})
			create(t, e.store, newThing("ns", "next"))
			if events, err := w.Next(patient(t)); err != nil || events[0].Record.Key != "ns/next" {
				t.Errorf("watch from after the deletion: %+v, %v", events, err)
			}
		})
	}
}
