// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/tracing"
)

// listPlan is what ListOptions mean for the cache and the key-value store.
type listPlan struct {
	match matcher
	limit int64  // 0 means no limit
	start string // the key to start at, without the resource's prefix
	// exact is the revision to list, or 0. If it is 0, the list may have any revision that is not
	// less than atLeast. current is set for a consistent read.
	exact, atLeast int64
	current        bool
	token          bool // the list continues another one from its token
	span           *tracing.Span
	asked          *ListOptions // set if the span is recorded

	// The list counts the objects that it reads, and those that it compares with the selectors.
	fetched, evaluated int
}

// plan interprets the options of a list as the Kubernetes API defines them.
func (s *Store) plan(opts *ListOptions) (*listPlan, error) {
	selected, err := s.cachePredicate(opts.Predicate)
	if err != nil {
		return nil, err
	}
	// As in Kubernetes, a negative limit means no limit.
	p := &listPlan{match: newMatcher(selected), limit: max(opts.Limit, 0)}
	if _, one := p.match.key(); one || opts.ResourceVersion == "0" && s.TTL == nil {
		p.limit = 0 // as in Kubernetes, a list of one object, or at revision 0, ignores the limit
	}
	if opts.Continue != "" {
		start, rev, err := decodeContinue(opts.Continue, p.match.root())
		if err != nil {
			return nil, err
		}
		if opts.ResourceVersion != "" && opts.ResourceVersion != "0" {
			return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		p.start, p.token = max(start, p.match.prefix()), true
		if rev > 0 {
			p.exact = rev
		} else {
			p.current = true
		}
		return p, nil
	}
	rev, err := parseRevision(opts.ResourceVersion)
	if err != nil {
		return nil, badRevision(err)
	}
	switch opts.Match {
	case metav1.ResourceVersionMatchExact:
		p.exact = rev
	case metav1.ResourceVersionMatchNotOlderThan:
		p.atLeast = rev
	case "":
		switch {
		case opts.ResourceVersion == "":
			p.current = true
		case opts.Limit > 0 && rev > 0:
			p.exact = rev // a revision and a limit without resourceVersionMatch request this exact revision
		default:
			p.atLeast = rev
		}
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("unknown ResourceVersionMatch value: %v", opts.Match))
	}
	return p, nil
}

// List implements Reader.
func (s *Store) List(ctx context.Context, opts ListOptions) (*Page, error) {
	p, err := s.plan(&opts)
	if err != nil {
		return nil, err
	}
	ctx, p.span = s.startAll(ctx, "cacher.GetList")
	defer p.span.End()
	if p.span != nil {
		asked := opts
		p.asked = &asked
	}
	page, err := s.list(ctx, p)
	if err != nil {
		return nil, err
	}
	return s.viewPage(page), nil
}

func (s *Store) list(ctx context.Context, p *listPlan) (page *Page, err error) {
	for {
		if err := s.cache.wait(ctx); err != nil {
			return nil, err
		}
		p.span.Event("Ready")
		want := max(p.exact, p.atLeast)
		if p.current {
			if want, err = s.b.revision.current(ctx); err != nil {
				return nil, translate(ctx, err)
			}
			p.span.Event(eventCurrent)
		}
		if err := s.b.barrier.wait(ctx, want); err != nil {
			if p.current && isTooLarge(err) {
				return s.listStored(ctx, p)
			}
			return nil, s.uncached(err)
		}
		p.span.Event(eventFresh)
		if p.exact > 0 && p.exact < s.b.compacted.Load() {
			return s.listStored(ctx, p)
		}
		snap, later, state := s.cache.snapshot(p)
		switch state {
		case ready:
			snap.undoChanges(later, p.match.prefix())
			page := s.page(p, &snap)
			p.span.Count("Listed items from cache", "count", p.fetched)
			p.span.Count("Filtered items", "count", len(page.Records))
			s.countCached(p, page)
			return page, nil
		case outside:
			return s.listStored(ctx, p)
		}
		// The cache has been reset meanwhile, so wait until it is ready again.
	}
}

// snapshot returns a state of the cache for p, and later changes that the caller has to undo in it.
// The third result is ready if snap is valid, outside if the requested state is older than the
// window, and otherwise the state of the cache, which is not ready.
func (c *cache) snapshot(p *listPlan) (snap snapshot, later []*change, state cacheState) {
	// The first snapshot after a change modifies the tree, so a read lock is not enough.
	c.mu.Lock()
	defer c.mu.Unlock()
	p.span.Event(eventLocked)
	if c.state != ready {
		return snapshot{}, nil, c.state
	}
	if p.exact > 0 {
		m := &p.match
		if p.limit > 0 {
			m = &matcher{} // remaining depends on all keys of the prefix, but an index contains only some of them
		}
		if snap, later, ok := c.pastLocked(m, p.exact); ok {
			p.span.Event("GetExactSnapshotLocked success")
			return snap, later, ready
		}
		return snapshot{}, nil, outside
	}
	snap = c.snapshotLocked(&p.match)
	p.span.Event(p.snapshotEvent(c))
	return snap, nil, ready
}

// page returns a page of a list from a snapshot of the cache. The caller holds no lock.
func (s *Store) page(p *listPlan, snap *snapshot) *Page {
	page := &Page{Revision: snap.rev}
	if p.exact > 0 {
		page.Revision = p.exact
	}
	prefix := p.match.prefix()
	if key, ok := p.match.key(); ok {
		prefix = key
	}
	var remaining int64
	if p.match.selective() {
		remaining = p.fillSelected(page, snap, prefix)
	} else {
		remaining = p.fillRange(page, snap, prefix)
	}
	page.broken = snap.broken && slices.ContainsFunc(page.Records, func(r *Record) bool { return r.broken })
	s.addContinue(p, page, remaining > 0, remaining)
	return page
}

// fillSelected adds the selected records to a page. remaining is 1 if there are keys after the
// page, selected or not: as in Kubernetes, the next page may be empty.
func (p *listPlan) fillSelected(page *Page, snap *snapshot, prefix string) (remaining int64) {
	seen := labelMatches{}
	snap.ascend(prefix, p.start, func(_ *Block, _ int, records []*Record) bool {
		if p.full(page) {
			remaining = 1
			return false
		}
		p.fetched += len(records)
		page.Records = p.match.filter(page.Records, records, seen)
		if p.limit > 0 && int64(len(page.Records)) >= p.limit {
			page.Records = page.Records[:p.limit]
			if page.Records[p.limit-1] != records[len(records)-1] {
				remaining = 1
				return false
			}
		}
		return true
	})
	if remaining > 0 && p.match.isOnlyMatch(page.Records[p.limit-1]) {
		return 0
	}
	return remaining
}

// full reports whether the page has as many records as the limit of the list allows.
func (p *listPlan) full(page *Page) bool {
	return p.limit > 0 && int64(len(page.Records)) == p.limit
}

// fillRange adds a range of records to a page, and counts the records after it.
func (p *listPlan) fillRange(page *Page, snap *snapshot, prefix string) (remaining int64) {
	// On the first page of a list of all records, the number of remaining records is the size of
	// the tree minus the page; no counting is needed.
	whole := p.start == "" && prefix == "" && snap.undo == nil
	var ranges [][]*Record
	var taken int64
	snap.ascend(prefix, p.start, func(b *Block, from int, records []*Record) bool {
		n := len(records)
		if p.limit > 0 {
			n = int(min(int64(n), p.limit-taken))
		}
		if n > 0 {
			ranges = append(ranges, records[:n])
			taken += int64(n)
			page.Runs = append(page.Runs, Run{Block: b, From: from, N: n})
		}
		remaining += int64(len(records) - n)
		if remaining > 0 && whole {
			remaining = int64(snap.records.n) - p.limit
			return false
		}
		return true
	})
	// Concat returns a slice without spare capacity. Many clients may hold a page at once.
	page.Records = slices.Concat(ranges...)
	p.fetched = len(page.Records)
	return remaining
}

// addContinue adds the continue token and the number of remaining items to a page if the list has
// more items.
func (s *Store) addContinue(p *listPlan, page *Page, more bool, remaining int64) {
	if !more {
		return
	}
	last := page.Records[len(page.Records)-1].Key
	page.Continue = s.continueAt(last+"\x00", p.match.root(), page.Revision)
	if !p.match.selective() {
		page.Remaining = &remaining
	}
}

// listStored lists from the key-value store, which has older states than the window of the cache.
func (s *Store) listStored(ctx context.Context, p *listPlan) (*Page, error) {
	opts := kv.RangeOptions{Prefix: s.fullKey(p.match.prefix()), Revision: p.exact}
	if p.start != "" {
		opts.Start = s.fullKey(p.start)
	}
	ctx, span := s.startListStored(ctx, p)
	defer span.End()
	page := &Page{Revision: p.exact}
	defer func() { s.cache.storedLists.add(p.fetched, p.evaluated, len(page.Records)) }() // also if the list fails
	for {
		opts.Limit = loadPage
		if !p.match.selective() && p.limit > 0 {
			opts.Limit = p.limit
		}
		res, err := s.b.kv.Range(ctx, opts)
		if err != nil {
			return nil, s.storedError(ctx, p, err, opts.Revision)
		}
		if opts.Revision == 0 {
			opts.Revision, page.Revision = res.Revision, res.Revision
		}
		p.fetched += len(res.Items)
		full, err := s.addItems(p, page, res.Items)
		if err != nil {
			return nil, err
		}
		rest := res.Count - int64(len(res.Items))
		switch {
		case full >= 0: // the page is full, but more items were read
			s.addContinue(p, page, !p.match.isOnlyMatch(page.Records[p.limit-1]), rest+int64(len(res.Items)-full))
			return page, nil
		case rest == 0:
			return page, nil
		case p.full(page):
			s.addContinue(p, page, !p.match.isOnlyMatch(page.Records[p.limit-1]), rest)
			return page, nil
		}
		opts.Start = res.Items[len(res.Items)-1].Key + "\x00"
	}
}

// addItems appends the matching items to a page. It returns the index of the first item for which
// the page has no room, or -1.
func (s *Store) addItems(p *listPlan, page *Page, items []kv.Item) (int, error) {
	for i := range items {
		if p.full(page) {
			return i, nil
		}
		p.evaluated++
		if r := s.cache.decode(&items[i], nil); p.match.matches(r) {
			page.Records = append(page.Records, r)
			page.broken = page.broken || r.broken
		}
	}
	return -1, nil
}

// storedError converts an error of a list from the key-value store. If the state of a continued
// list has been compacted, the error contains a token that continues with the present state.
func (s *Store) storedError(ctx context.Context, p *listPlan, err error, rev int64) error {
	switch {
	case errors.Is(err, kv.ErrCompacted) && p.token:
		expired := apierrors.NewResourceExpired(msgContinueExpired)
		expired.ErrStatus.ListMeta.Continue = s.continueAt(p.start, p.match.root(), -1)
		return expired
	case errors.Is(err, kv.ErrFutureRevision):
		return tooLarge(rev, s.b.barrier.reached())
	}
	return translate(ctx, err)
}
