// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"pgregory.net/rapid"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
)

// op is one step of a random run. Each kind of step derives keys and values from A, B, C and the
// state of the run, so that every sequence of steps is valid.
type op struct {
	Kind    string
	A, B, C int
}

var opKinds = []string{
	"create", "create", "create", "update", "update", "update", "touch", "delete", "foreign",
	"list", "list", "past", "pages", "get", "watch", "watch", "read", "read", "stop", "compact", "restart",
}

func opGen() *rapid.Generator[op] {
	return rapid.Custom(func(t *rapid.T) op {
		n := rapid.IntRange(0, 1<<16)
		return op{rapid.SampledFrom(opKinds).Draw(t, "kind"), n.Draw(t, "a"), n.Draw(t, "b"), n.Draw(t, "c")}
	})
}

func runGen() *rapid.Generator[[]op] { return rapid.SliceOfN(opGen(), 10, 120) }

// TestModelMemory and TestModelEmbedded compare the store with a simple model that keeps the
// complete state at every revision.
func TestModelMemory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		kvs := newMemory(t)
		newModel(t, kvs, "/registry").run(runGen().Draw(rt, "ops"), rt.Fatalf)
	})
}

func TestModelEmbedded(t *testing.T) {
	kvs := newEmbedded(t)
	for seed := range 12 {
		newModel(t, kvs, fmt.Sprintf("/run%d", seed)).run(runGen().Example(seed), t.Fatalf)
	}
}

// state has the stored objects at a revision, by key.
type state map[string]*Record

// model runs operations on a store and keeps the states that it expects.
type model struct {
	t     *testing.T
	kv    kv.Store
	root  string
	env   *env
	stop  func()
	ctx   context.Context
	fatal func(format string, args ...any)

	first     int64 // revision of the key-value store before the first write
	states    map[int64]state
	revisions []int64 // first, and the revisions of the model's writes
	compacted int64
	watchers  []*modelWatcher
}

// modelWatcher is a watch with the events that it still has to deliver.
type modelWatcher struct {
	w       Watcher
	match   matcher
	rev     int64 // all events up to this revision have been delivered
	initial []string
	lag     int // number of changes of the resource since the watch was last read
}

func newModel(t *testing.T, kvs kv.Store, root string) *model {
	return &model{t: t, kv: kvs, root: root}
}

func (m *model) boot() {
	// The window is small, so that watches fall behind it. Blocks are small, and the encoding cache
	// is too small for all of them.
	m.env, m.stop = boot(m.t, m.kv, clock.Real(), m.root, func(b *Backend) {
		b.limits = windowLimits{min: 8, max: 8, age: 0, bytes: 1 << 30}
		b.encodings = newEncodingCache(300)
		b.encodings.blockRecords = 3
		b.packer.groupBytes, b.packer.minBytes, b.packer.wakeBytes = 600, 0, 500
	})
}

func (m *model) run(ops []op, fatal func(format string, args ...any)) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m.ctx, m.fatal = ctx, fatal
	rev, err := m.kv.Revision(ctx)
	m.must(err)
	m.first, m.revisions, m.states = rev, []int64{rev}, map[int64]state{rev: {}}
	m.boot()
	defer func() { m.stop() }()
	steps := map[string]func(op){
		"create": m.create, "update": m.update, "touch": m.touch, "delete": m.remove, "foreign": m.foreign,
		"list": m.list, "past": m.past, "pages": m.pages, "get": m.get, "watch": m.watch, "read": m.read,
		"stop": m.stopWatch, "compact": m.compact, "restart": m.restart,
	}
	for _, o := range ops {
		steps[o.Kind](o)
	}
	for i := range m.watchers {
		m.read(op{A: i})
	}
}

func (m *model) must(err error) {
	if err != nil {
		m.fatal("unexpected error: %v", err)
	}
}

func (m *model) now() int64     { return m.revisions[len(m.revisions)-1] }
func (m *model) present() state { return m.states[m.now()] }

// wrote records that a write at revision rev changed key to r, or deleted it if r is nil.
func (m *model) wrote(rev int64, key string, r *Record) {
	if rev <= m.now() {
		m.fatal("write at %d after one at %d", rev, m.now())
	}
	next := maps.Clone(m.present())
	if r == nil {
		delete(next, key)
	} else {
		next[key] = r
	}
	m.revisions = append(m.revisions, rev)
	m.states[rev] = next
	for _, w := range m.watchers {
		w.lag++
	}
}

// thing returns a key and an object, chosen by the numbers of o.
func (m *model) thing(o op) (string, *thing) {
	ns, name := fmt.Sprintf("ns%d", o.A%3), fmt.Sprintf("t%d", o.A/3%5)
	obj := newThing(ns, name)
	m.vary(obj, o)
	return ns + "/" + name, obj
}

func (m *model) vary(obj *thing, o op) {
	obj.Labels = map[string]string{"color": []string{"red", "green", "blue"}[o.B%3]}
	obj.Node = []string{"", "n1", "n2"}[o.B/3%3]
	obj.Data = strconv.Itoa(o.C)
}

// existing returns a key chosen by o, usually of a present object, and whether the object exists.
func (m *model) existing(o op) (string, bool) {
	keys := slices.Sorted(maps.Keys(m.present()))
	if len(keys) == 0 || o.A%10 == 0 {
		key, _ := m.thing(o)
		_, ok := m.present()[key]
		return key, ok
	}
	return keys[o.A%len(keys)], true
}

func (m *model) check(r *Record, want *Record, what string) {
	if r.Key != want.Key || r.Revision != want.Revision || string(r.Bytes()) != string(want.Bytes()) {
		m.fatal("%s: got %s at %d: %s, want %s at %d: %s", what, r.Key, r.Revision, r.Bytes(), want.Key,
			want.Revision, want.Bytes())
	}
	obj, err := r.Shared()
	m.must(err)
	if got := obj.GetResourceVersion(); got != formatRevision(r.Revision) {
		m.fatal("%s: decoded resourceVersion %s of record at %d", what, got, r.Revision)
	}
}

func (m *model) create(o op) {
	key, obj := m.thing(o)
	r, err := m.env.store.Create(m.ctx, key, obj, 0)
	if _, there := m.present()[key]; there {
		if !apierrors.IsAlreadyExists(err) {
			m.fatal("Create of an existing object: %v", err)
		}
		return
	}
	m.must(err)
	m.wrote(r.Revision, key, r)
}

func (m *model) update(o op) {
	key, there := m.existing(o)
	r, err := m.env.store.Update(m.ctx, key, func(_ context.Context, cur *Record) (Object, error) {
		obj, err := cur.Object()
		m.must(err)
		m.vary(obj.(*thing), o)
		return obj, nil
	})
	if !there {
		if !apierrors.IsNotFound(err) {
			m.fatal("Update of an absent object: %v", err)
		}
		return
	}
	m.must(err)
	if old := m.present()[key]; r.Revision == old.Revision {
		m.check(r, old, "update without change")
		return
	}
	m.wrote(r.Revision, key, r)
}

// touch calls Update with a function that, depending on o, changes nothing, returns an error, or
// deletes the object.
func (m *model) touch(o op) {
	key, there := m.existing(o)
	if !there {
		return
	}
	refuse := errors.New("refused")
	r, err := m.env.store.Update(m.ctx, key, func(_ context.Context, cur *Record) (Object, error) {
		switch o.B % 3 {
		case 0:
			return cur.Object()
		case 1:
			return nil, refuse
		}
		return nil, nil
	})
	switch o.B % 3 {
	case 0:
		m.must(err)
		m.check(r, m.present()[key], "no-op update")
	case 1:
		if !errors.Is(err, refuse) {
			m.fatal("refused update: %v", err)
		}
	default:
		m.must(err)
		m.wrote(r.Revision, key, nil)
	}
}

func (m *model) remove(o op) {
	key, there := m.existing(o)
	r, err := m.env.store.Delete(m.ctx, key, func(cur *Record) error {
		if want := m.present()[key]; want == nil || cur.Revision != want.Revision {
			return errors.New("stale") // the store must call check again with the present state
		}
		return nil
	})
	if !there {
		if !apierrors.IsNotFound(err) {
			m.fatal("Delete of an absent object: %v", err)
		}
		return
	}
	m.must(err)
	if want := m.present()[key]; string(r.Bytes()) != string(want.Bytes()) {
		m.fatal("Delete returned %s, want %s", r.Bytes(), want.Bytes())
	}
	m.wrote(r.Revision, key, nil)
}

// foreign writes directly to the key-value store, as another server would, to a key of the resource
// or to another key.
func (m *model) foreign(o op) {
	key, obj := m.thing(o)
	data, err := thingCodec{}.Encode(obj)
	m.must(err)
	if o.C%3 == 0 {
		full := m.root + "/others/" + key
		item, _, err := m.kv.Get(m.ctx, full)
		m.must(err)
		var expect int64
		if item != nil {
			expect = item.ModRevision
		}
		_, err = m.kv.Put(m.ctx, full, data, expect, 0)
		m.must(err)
		return
	}
	var expect int64
	if old := m.present()[key]; old != nil {
		expect = old.Revision
	}
	res, err := m.kv.Put(m.ctx, m.root+"/things/"+key, data, expect, 0)
	m.must(err)
	if !res.OK {
		m.fatal("foreign write conflicts: %+v", res)
	}
	m.wrote(res.Revision, key, &Record{Key: key, Revision: res.Revision, data: data, size: len(data),
		Attrs: thingAttrs(obj)})
}
