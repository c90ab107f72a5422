// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"keelson.dev/apiserver/store/kv"
)

// predicate returns one of several predicates, chosen by n.
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

// matches is a simple implementation of Predicate, with which the tests compare the store.
func matches(p Predicate, r *Record) bool {
	return (p.Namespace == "" || strings.HasPrefix(r.Key, p.Namespace+"/")) &&
		(p.Labels == nil || p.Labels.Matches(r.Labels)) && (p.Fields == nil || p.Fields.Matches(selectable{r}))
}

// at returns the expected state at a revision.
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
	m.must(checkEncodings(page))
}

// past lists at an exact revision, which must succeed unless the revision has been compacted and
// has left the window.
func (m *model) past(o op) {
	rev := m.revisions[o.B%len(m.revisions)]
	opts := ListOptions{Predicate: predicate(o.A), ResourceVersion: formatRevision(rev),
		Match: metav1.ResourceVersionMatchExact}
	page, err := m.env.store.List(m.ctx, opts)
	if rev < m.compacted && apierrors.IsResourceExpired(err) && rev < m.floor() {
		return
	}
	m.must(err)
	if page.Revision != rev {
		m.fatal("exact list at %d, want %d", page.Revision, rev)
	}
	m.compare(page.Records, m.selected(opts.Predicate, rev), fmt.Sprintf("exact list %+v", opts))
	m.must(checkEncodings(page))
}

// pages lists page by page, with writes between the pages.
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
		m.must(checkEncodings(page))
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
		// Make some writes. They may push the list's revision out of the window, so that the
		// key-value store has to answer the following pages.
		for j := range o.C % 12 {
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

// floor returns the revision after which the window of the store's cache contains all changes.
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
	// list returns only after the cache has applied all events, so that the window does not change
	// during the step.
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
	return fmt.Sprintf("%s %s %d/%d %s", t, r.Key, rev, r.Revision, r.Bytes())
}

// expected returns the events that a watcher must deliver next.
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

// read checks that a watcher delivers exactly the expected events.
func (m *model) read(o op) {
	if len(m.watchers) == 0 {
		return
	}
	i := o.A % len(m.watchers)
	mw := m.watchers[i]
	m.list(op{}) // waits until all events have been applied
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
	// list returns only after the watch has delivered all events, so that the compaction removes
	// none that it still needs. Another test covers that case.
	m.list(op{})
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

// restart stops the server, which ends all watches, and starts another one. A client that resumes
// its watch after the last revision that it received must succeed, unless that revision has been
// compacted.
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
