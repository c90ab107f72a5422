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
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
)

// op is one step of a random run. What its numbers mean depends on its kind and
// on the state the run is in, so that every sequence is a valid one.
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

// TestModelMemory and TestModelEmbedded compare the store with a naive model:
// the complete state at every revision.
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

// state is what is stored at a revision: bytes and revision by key.
type state map[string]*Record

// model is the truth about one run.
type model struct {
	t     *testing.T
	kv    kv.Store
	root  string
	env   *env
	stop  func()
	ctx   context.Context
	fatal func(format string, args ...any)

	first     int64 // revision before the first write
	states    map[int64]state
	revisions []int64 // of our writes, with first
	compacted int64
	watchers  []*modelWatcher
}

// modelWatcher is a watch under way, with what it still has to deliver.
type modelWatcher struct {
	w       Watcher
	match   matcher
	rev     int64 // everything up to here has been delivered
	initial []string
	lag     int // changes of the resource since it was last read
}

func newModel(t *testing.T, kvs kv.Store, root string) *model {
	return &model{t: t, kv: kvs, root: root}
}

func (m *model) boot() {
	// A tiny window, so that runs fall out of it.
	m.env, m.stop = boot(m.t, m.kv, clock.Real(), m.root, func(b *Backend) {
		b.limits = windowLimits{min: 8, max: 8, age: 0, bytes: 1 << 30}
	})
}

func (m *model) run(ops []op, fatal func(format string, args ...any)) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
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

// wrote notes a write of the model's.
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

// thing makes an object out of numbers.
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

// existing picks a key; any is of an object that may not be there.
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
	if r.Key != want.Key || r.Revision != want.Revision || string(r.Data) != string(want.Data) {
		m.fatal("%s: got %s at %d: %s, want %s at %d: %s", what, r.Key, r.Revision, r.Data, want.Key, want.Revision, want.Data)
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

// touch updates without a change, fails an update, or deletes by one.
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
			return errors.New("stale") // the store must try again with the present state
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
	if want := m.present()[key]; string(r.Data) != string(want.Data) {
		m.fatal("Delete returned %s, want %s", r.Data, want.Data)
	}
	m.wrote(r.Revision, key, nil)
}

// foreign writes as another server does, behind the store's back, to our
// resource or to something else.
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
	m.wrote(res.Revision, key, &Record{Key: key, Revision: res.Revision, Data: data, Attrs: thingAttrs(obj)})
}

// predicate makes a selection out of a number.
func predicate(n int) Predicate {
	var p Predicate
	if n%2 == 1 {
		p.Namespace = fmt.Sprintf("ns%d", n/2%3)
	}
	switch n / 6 % 6 {
	case 1:
		p.Labels = labels.SelectorFromSet(labels.Set{"color": "red"})
	case 2:
		p.Fields = fields.OneTermEqualSelector("spec.nodeName", "n1")
	case 3:
		p.Fields = fields.OneTermEqualSelector("spec.nodeName", "")
		p.Labels = labels.SelectorFromSet(labels.Set{"color": "green"})
	case 4:
		p.Fields = fields.OneTermEqualSelector("metadata.name", "t1")
	case 5:
		p.Fields = fields.AndSelectors(
			fields.OneTermEqualSelector("metadata.namespace", "ns1"), fields.OneTermNotEqualSelector("spec.nodeName", "n2"))
	}
	return p
}

// matches says by the definition of a predicate whether a record is selected.
func matches(p Predicate, r *Record) bool {
	return (p.Namespace == "" || strings.HasPrefix(r.Key, p.Namespace+"/")) &&
		(p.Labels == nil || p.Labels.Matches(r.Labels)) && (p.Fields == nil || p.Fields.Matches(r.Attrs.Fields))
}

// at is the state at a revision between our writes.
func (m *model) at(rev int64) state {
	i, exact := slices.BinarySearch(m.revisions, rev)
	if !exact {
		i--
	}
	return m.states[m.revisions[i]]
}

func (m *model) selected(p Predicate, rev int64) []*Record {
	var out []*Record
	st := m.at(rev)
	for _, key := range slices.Sorted(maps.Keys(st)) {
		if matches(p, st[key]) {
			out = append(out, st[key])
		}
	}
	return out
}

func (m *model) compare(got, want []*Record, what string) {
	if len(got) != len(want) {
		m.fatal("%s: %d records, want %d", what, len(got), len(want))
	}
	for i := range got {
		m.check(got[i], want[i], what)
	}
}

func (m *model) list(o op) {
	opts := ListOptions{Predicate: predicate(o.A)}
	atLeast := m.now()
	switch o.B % 3 {
	case 1:
		opts.ResourceVersion, atLeast = "0", 0
	case 2:
		atLeast = m.revisions[o.C%len(m.revisions)]
		opts.ResourceVersion = formatRevision(atLeast)
		opts.Match = metav1.ResourceVersionMatchNotOlderThan
	}
	page, err := m.env.store.List(m.ctx, opts)
	m.must(err)
	if page.Revision < atLeast {
		m.fatal("list at %d, want at least %d", page.Revision, atLeast)
	}
	m.compare(page.Records, m.selected(opts.Predicate, page.Revision), fmt.Sprintf("list %+v at %d", opts, page.Revision))
}

// past lists at an exact revision, which is there unless it has been compacted
// and has left the window.
func (m *model) past(o op) {
	rev := m.revisions[o.B%len(m.revisions)]
	opts := ListOptions{Predicate: predicate(o.A), ResourceVersion: formatRevision(rev), Match: metav1.ResourceVersionMatchExact}
	page, err := m.env.store.List(m.ctx, opts)
	if rev < m.compacted && apierrors.IsResourceExpired(err) && rev < m.floor() {
		return
	}
	m.must(err)
	if page.Revision != rev {
		m.fatal("exact list at %d, want %d", page.Revision, rev)
	}
	m.compare(page.Records, m.selected(opts.Predicate, rev), fmt.Sprintf("exact list %+v", opts))
}

// pages lists page by page while writes go on.
func (m *model) pages(o op) {
	opts := ListOptions{Predicate: predicate(o.A), Limit: int64(1 + o.B%4)}
	var got []*Record
	var rev int64
	for i := 0; ; i++ {
		page, err := m.env.store.List(m.ctx, opts)
		m.must(err)
		if rev == 0 {
			rev = page.Revision
		}
		if page.Revision != rev {
			m.fatal("page at %d of a list at %d", page.Revision, rev)
		}
		got = append(got, page.Records...)
		want := m.selected(opts.Predicate, rev)
		if page.Continue == "" {
			m.compare(got, want, fmt.Sprintf("pages of %+v at %d", opts, rev))
			return
		}
		if int64(len(page.Records)) != opts.Limit {
			m.fatal("page of %d, limit %d", len(page.Records), opts.Limit)
		}
		selective := opts.Labels != nil || opts.Fields != nil
		if selective != (page.Remaining == nil) || !selective && *page.Remaining != int64(len(want)-len(got)) {
			m.fatal("remaining %v of %d after %d", page.Remaining, len(want), len(got))
		}
		opts.Continue = page.Continue
		for j := range o.C % 12 { // falls out of the window at times: then etcd has the rest
			m.foreign(op{A: o.A + i + j, B: o.B + i, C: 3*(i+j) + 1})
		}
	}
}

func (m *model) get(o op) {
	key, there := m.existing(o)
	r, err := m.env.store.Get(m.ctx, key, "")
	if !there {
		if !apierrors.IsNotFound(err) {
			m.fatal("Get of an absent object: %v", err)
		}
		return
	}
	m.must(err)
	m.check(r, m.present()[key], "get")
}

// floor is the earliest revision that the store's window reaches back to.
func (m *model) floor() int64 {
	c := m.env.store.cache
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.window.floor
}

func (m *model) watch(o op) {
	opts := WatchOptions{Predicate: predicate(o.A), AllowBookmarks: true}
	mw := &modelWatcher{match: newMatcher(opts.Predicate)}
	initial := false
	yes, no := true, false
	switch o.B % 5 {
	case 0:
		initial = true
	case 1:
		opts.SendInitialEvents, opts.Match, initial = &yes, metav1.ResourceVersionMatchNotOlderThan, true
	case 2:
		opts.SendInitialEvents, opts.Match = &no, metav1.ResourceVersionMatchNotOlderThan
		mw.rev = m.now()
	default:
		mw.rev = m.revisions[o.C%len(m.revisions)]
		opts.ResourceVersion = formatRevision(mw.rev)
	}
	// The store has to have caught up, or what it says of its window is not yet final.
	m.list(op{A: 0, B: 0})
	w, err := m.env.store.Watch(m.ctx, opts)
	if mw.rev < m.floor() && !initial {
		if !apierrors.IsResourceExpired(err) {
			m.fatal("watch from %d, before the window at %d: %v", mw.rev, m.floor(), err)
		}
		return
	}
	m.must(err)
	if initial {
		mw.rev = w.(*watcher).initialRev
		for _, r := range m.selected(opts.Predicate, mw.rev) {
			mw.initial = append(mw.initial, describe(Added, r, r.Revision))
		}
		if opts.SendInitialEvents != nil {
			mw.initial = append(mw.initial, fmt.Sprintf("BOOKMARK %d", mw.rev))
		}
	}
	mw.w = w
	for _, rev := range m.revisions {
		if rev > mw.rev {
			mw.lag++
		}
	}
	if len(m.watchers) < 6 {
		m.watchers = append(m.watchers, mw)
		return
	}
	m.watchers[o.C%6].w.Stop()
	m.watchers[o.C%6] = mw
}

func describe(t EventType, r *Record, rev int64) string {
	return fmt.Sprintf("%s %s %d/%d %s", t, r.Key, rev, r.Revision, r.Data)
}

// expected is what a watcher is to deliver next.
func (m *model) expected(mw *modelWatcher) []string {
	out := mw.initial
	i, exact := slices.BinarySearch(m.revisions, mw.rev)
	if !exact {
		i--
	}
	for ; i+1 < len(m.revisions); i++ {
		rev := m.revisions[i+1]
		before, after := m.states[m.revisions[i]], m.states[rev]
		for _, key := range slices.Sorted(maps.Keys(union(before, after))) {
			prev, cur := before[key], after[key]
			if prev == cur {
				continue
			}
			was, is := prev != nil && mw.match.matches(prev), cur != nil && mw.match.matches(cur)
			switch {
			case was && is:
				out = append(out, describe(Modified, cur, rev))
			case is:
				out = append(out, describe(Added, cur, rev))
			case was:
				out = append(out, describe(Deleted, prev.at(rev), rev))
			}
		}
	}
	return out
}

func union(a, b state) state {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// read reads all that a watcher has to deliver, and that it has no more.
func (m *model) read(o op) {
	if len(m.watchers) == 0 {
		return
	}
	i := o.A % len(m.watchers)
	mw := m.watchers[i]
	m.list(op{}) // everything has been applied
	var got []string
	ended, cancel := context.WithCancel(m.ctx)
	cancel()
	for {
		events, err := mw.w.Next(ended)
		if errors.Is(err, context.Canceled) {
			break
		}
		if apierrors.IsResourceExpired(err) && mw.lag >= 8 {
			m.watchers = slices.Delete(m.watchers, i, i+1)
			return
		}
		m.must(err)
		for _, e := range events {
			if e.Type == Bookmark {
				got = append(got, fmt.Sprintf("BOOKMARK %d", e.Revision))
				continue
			}
			got = append(got, describe(e.Type, e.Record, e.Revision))
		}
	}
	if want := m.expected(mw); !slices.Equal(got, want) {
		m.fatal("watch after %d:\ngot  %s\nwant %s", mw.rev, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	mw.initial, mw.rev, mw.lag = nil, m.now(), 0
}

func (m *model) stopWatch(o op) {
	if len(m.watchers) == 0 {
		return
	}
	i := o.A % len(m.watchers)
	m.watchers[i].w.Stop()
	m.watchers = slices.Delete(m.watchers, i, i+1)
}

func (m *model) compact(o op) {
	rev := m.revisions[o.A%len(m.revisions)]
	if rev <= m.compacted {
		return
	}
	m.list(op{}) // a watch that compaction overtakes is another test's
	item, _, err := m.kv.Get(m.ctx, kv.CompactRevKey)
	m.must(err)
	var expect int64
	if item != nil {
		expect = item.ModRevision
	}
	_, err = m.kv.Put(m.ctx, kv.CompactRevKey, []byte(formatRevision(rev)), expect, 0)
	m.must(err)
	if err := m.kv.Compact(m.ctx, rev); err != nil && !errors.Is(err, kv.ErrCompacted) {
		m.must(err)
	}
	m.compacted = rev
}

// restart ends the server and starts another. Watches end; those who resume from
// what they have seen last are served, unless that has been compacted.
func (m *model) restart(op) {
	m.stop()
	for _, mw := range m.watchers {
		for {
			_, err := mw.w.Next(m.ctx)
			if err != nil {
				if !apierrors.IsResourceExpired(err) {
					m.fatal("watch of a stopped server: %v", err)
				}
				break
			}
		}
	}
	m.watchers = nil
	m.boot()
	m.list(op{})
	if floor := m.floor(); floor > max(m.first, m.compacted) {
		m.fatal("after a restart watches can resume from %d on, want %d", floor, max(m.first, m.compacted))
	}
}
