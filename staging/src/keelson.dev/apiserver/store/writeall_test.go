// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"keelson.dev/api/clock"
)

var errUnwilling = errors.New("this one may not be changed")

// assignAll sets the node of all things with one UpdateAll, whose function returns an error for the
// keys in except.
func assignAll(t *testing.T, s *Store, keys []string, node string, except ...string) ([]error, error) {
	t.Helper()
	return s.UpdateAll(patient(t), keys, func(_ context.Context, i int, cur *Record) (Object, error) {
		if slices.Contains(except, keys[i]) {
			return nil, errUnwilling
		}
		obj, err := cur.Object()
		if err == nil {
			obj.(*thing).Node = node
		}
		return obj, err
	})
}

func createSome(t *testing.T, s *Store, n int) (keys []string) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("t%d", i)
		create(t, s, newThing("ns", name))
		keys = append(keys, "ns/"+name)
	}
	return keys
}

func onNode(t *testing.T, s *Store, node string) (n int, revisions map[int64]bool) {
	t.Helper()
	page, err := s.List(patient(t), ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	revisions = map[int64]bool{}
	for _, r := range page.Records {
		obj, err := r.Object()
		if err != nil {
			t.Fatal(err)
		}
		if obj.(*thing).Node == node {
			n++
			revisions[r.Revision] = true
		}
	}
	return n, revisions
}

// TestUpdateAll checks that either all objects change at one revision, or no object changes.
func TestUpdateAll(t *testing.T) {
	onEach(t, func(t *testing.T, e *env) {
		keys := createSome(t, e.store, 300) // more objects than etcd accepts by default
		refused, err := assignAll(t, e.store, append(slices.Clone(keys), "ns/absent"), "x", keys[7])
		if err != nil || len(refused) != 301 || !errors.Is(refused[7], errUnwilling) ||
			!apierrors.IsNotFound(refused[300]) || refused[8] != nil {
			t.Fatalf("refused %v, error %v", refused, err)
		}
		if n, _ := onNode(t, e.store, "x"); n != 0 {
			t.Errorf("%d things have changed although two may not", n)
		}
		if refused, err = assignAll(t, e.store, keys, "x"); err != nil || refused != nil {
			t.Fatalf("refused %v, error %v", refused, err)
		}
		if n, revisions := onNode(t, e.store, "x"); n != len(keys) || len(revisions) != 1 {
			t.Errorf("%d of %d things have changed, at %d revisions", n, len(keys), len(revisions))
		}
	})
}

// TestUpdateAllRetries checks that UpdateAll reads all objects again if one of them has changed
// meanwhile.
func TestUpdateAllRetries(t *testing.T) {
	onEach(t, func(t *testing.T, e *env) {
		keys := createSome(t, e.store, 3)
		var interfered atomic.Bool
		refused, err := e.store.UpdateAll(patient(t), keys, func(_ context.Context, i int, cur *Record) (Object, error) {
			obj, err := cur.Object()
			if err != nil {
				return nil, err
			}
			if i == 1 && interfered.CompareAndSwap(false, true) {
				update(t, e.store, keys[1], func(o *thing) { o.Labels = map[string]string{"by": "another"} })
			}
			obj.(*thing).Node = "x"
			return obj, nil
		})
		if err != nil || refused != nil {
			t.Fatalf("refused %v, error %v", refused, err)
		}
		r, err := e.store.Get(patient(t), keys[1], "")
		if err != nil {
			t.Fatal(err)
		}
		obj, err := r.Object()
		if o := obj.(*thing); err != nil || o.Labels["by"] != "another" || o.Node != "x" {
			t.Errorf("%+v, %v: the other's change is lost", obj, err)
		}
	})
}

// TestWatchResumesWithinARevision checks that a watch that ended between two events of one revision
// receives the second one when it resumes, also after a restart of the server. If only one object
// changed at the revision, the resumed watch does not repeat its event.
func TestWatchResumesWithinARevision(t *testing.T) {
	onEach(t, func(t *testing.T, e *env) {
		keys := createSome(t, e.store, 3)
		alone, err := e.store.Get(patient(t), keys[2], "")
		if err != nil {
			t.Fatal(err)
		}
		if refused, err := assignAll(t, e.store, keys, "x"); err != nil || refused != nil {
			t.Fatalf("refused %v, error %v", refused, err)
		}
		_, revisions := onNode(t, e.store, "x")
		for rev := range revisions {
			again, stop := boot(t, e.kv, clock.Real(), "/registry")
			defer stop()
			for name, s := range map[string]*Store{"the same server": e.store, "another": again.store} {
				w := watchAll(t, s, WatchOptions{ResourceVersion: formatRevision(rev)})
				seen := map[string]bool{}
				for len(seen) < len(keys) {
					events, err := w.Next(patient(t))
					if err != nil {
						t.Fatal(name, err)
					}
					for _, ev := range events {
						if ev.Revision != rev {
							t.Fatalf("%s: event at %d, want %d", name, ev.Revision, rev)
						}
						seen[ev.Record.Key] = true
					}
				}
			}
			w := watchAll(t, e.store, WatchOptions{ResourceVersion: formatRevision(alone.Revision)})
			if events, err := w.Next(patient(t)); err != nil || events[0].Revision != rev {
				t.Errorf("after a revision of one change: %+v, %v", events, err)
			}
		}
	})
}
