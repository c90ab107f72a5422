// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/leaktest"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/etcd"
	"keelson.dev/apiserver/store/kv/etcd/embedded"
	"keelson.dev/apiserver/store/kv/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// thing is the kind of object that these tests store. Like a pod, it runs on a node.
type thing struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Node              string `json:"node,omitempty"`
	Data              string `json:"data,omitempty"`
}

func (t *thing) DeepCopyObject() runtime.Object {
	out := *t
	out.ObjectMeta = *t.ObjectMeta.DeepCopy()
	return &out
}

// thingCodec stores things as JSON.
type thingCodec struct{}

func (thingCodec) Lossy() bool { return false }

func (thingCodec) Encode(obj Object) ([]byte, error) {
	t := *obj.(*thing)
	t.ResourceVersion = ""
	return json.Marshal(&t)
}

func (thingCodec) Decode(data []byte, rev int64) (Object, error) {
	t := &thing{}
	if err := json.Unmarshal(data, t); err != nil {
		return nil, err
	}
	t.ResourceVersion = strconv.FormatInt(rev, 10)
	return t, nil
}

func thingAttrs(obj Object) Attrs {
	t := obj.(*thing)
	return Attrs{
		Labels: maps.Clone(t.Labels),
		Fields: fields.Set{"metadata.name": t.Name, "metadata.namespace": t.Namespace, "spec.nodeName": t.Node},
	}
}

func newThing(ns, name string) *thing {
	return &thing{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

var things = schema.GroupResource{Group: "example.com", Resource: "things"}

// env is a store with its backend and key-value store, for a test.
type env struct {
	kv      kv.Store
	backend *Backend
	store   *Store
}

func run(t testing.TB, kvs kv.Store, clk clock.Clock) *env {
	t.Helper()
	e, stop := boot(t, kvs, clk, "/registry")
	t.Cleanup(stop)
	return e
}

// boot starts a backend and a store of things. stop ends them abruptly, as a crash would.
func boot(t testing.TB, kvs kv.Store, clk clock.Clock, root string, adjust ...func(*Backend)) (e *env, stop func()) {
	e = &env{kv: kvs}
	e.backend = NewBackend(BackendConfig{KV: kvs, Root: root, Clock: clk, Log: slog.New(slog.DiscardHandler)})
	for _, f := range adjust {
		f(e.backend)
	}
	e.store = New(Config{
		Backend: e.backend, Prefix: "things", GroupResource: things, Codec: thingCodec{},
		Attrs: thingAttrs, IndexFields: []string{"spec.nodeName"},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.backend.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return e, func() { cancel(); <-done }
}

func newMemory(t testing.TB) kv.Store {
	m := memory.New(clock.Real())
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func newEmbedded(t testing.TB) kv.Store {
	t.Helper()
	s, err := embedded.Start(t.Context(), etcd.Embedded{
		Dir: t.TempDir(), UnsafeNoFsync: true, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// onEach runs a test once on each implementation of the key-value store.
func onEach(t *testing.T, test func(t *testing.T, e *env)) {
	t.Run("memory", func(t *testing.T) { test(t, run(t, newMemory(t), clock.Real())) })
	t.Run("etcd", func(t *testing.T) { test(t, run(t, newEmbedded(t), clock.Real())) })
}

func TestSmoke(t *testing.T) {
	onEach(t, func(t *testing.T, e *env) {
		ctx := patient(t)
		s := e.store
		w, err := s.Watch(ctx, WatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		for i := range 5 {
			name := fmt.Sprintf("n%d", i)
			if _, err := s.Create(ctx, "ns/"+name, newThing("ns", name), 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Update(ctx, "ns/n1", func(_ context.Context, cur *Record) (Object, error) {
			obj, err := cur.Object()
			if err != nil {
				return nil, err
			}
			obj.(*thing).Node = "a"
			return obj, nil
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Delete(ctx, "ns/n0", nil); err != nil {
			t.Fatal(err)
		}
		page, err := s.List(ctx, ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Records) != 4 {
			t.Errorf("listed %d records, want 4", len(page.Records))
		}
		var got []string
		for len(got) < 7 {
			events, err := w.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range events {
				got = append(got, string(ev.Type)+" "+ev.Record.Key)
			}
		}
		t.Log(got)
	})
}

// TestStoresOfOnePrefixSeeEachOther checks that each of several stores on the same keys sees the
// writes of the others.
func TestStoresOfOnePrefixSeeEachOther(t *testing.T) {
	e := run(t, newMemory(t), clock.Real())
	other := New(Config{
		Backend: e.backend, Prefix: "things", GroupResource: things, Codec: thingCodec{}, Attrs: thingAttrs,
	})
	ctx := patient(t)
	both := []*Store{e.store, other}
	for round, writer := range both {
		name := fmt.Sprint("n", round)
		if _, err := writer.Create(ctx, "ns/"+name, newThing("ns", name), 0); err != nil {
			t.Fatal(err)
		}
		for reader, s := range both {
			page, err := s.List(ctx, ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Records) != round+1 {
				t.Errorf("store %d lists %d objects after write %d", reader, len(page.Records), round)
			}
		}
	}
	other.Close()
	if _, err := e.store.Create(ctx, "ns/last", newThing("ns", "last"), 0); err != nil {
		t.Fatal(err)
	}
	if page, err := e.store.List(ctx, ListOptions{}); err != nil || len(page.Records) != 3 {
		t.Errorf("after the other store was closed: %v, error %v", page, err)
	}
}

// TestFirstWriteCanBeWatched checks that after one store of a prefix has written an object, each
// store of the prefix can watch from the object's revision, even if none was used before.
func TestFirstWriteCanBeWatched(t *testing.T) {
	onEach(t, func(t *testing.T, e *env) {
		other := New(Config{
			Backend: e.backend, Prefix: "things", GroupResource: things, Codec: thingCodec{}, Attrs: thingAttrs,
		})
		ctx := patient(t)
		made, err := e.store.Create(ctx, "ns/a", newThing("ns", "a"), 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.store.Delete(ctx, "ns/a", nil); err != nil {
			t.Fatal(err)
		}
		for i, s := range []*Store{e.store, other} {
			w, err := s.Watch(ctx, WatchOptions{ResourceVersion: fmt.Sprint(made.Revision)})
			if err != nil {
				t.Fatalf("watch through store %d: %v", i, err)
			}
			defer w.Stop()
			if events, err := w.Next(ctx); err != nil || events[0].Type != Deleted {
				t.Errorf("through store %d: %+v, error %v", i, events, err)
			}
		}
	})
}
