// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import "sync/atomic"

// ListStats counts the lists whose objects came from the same source, since the server started.
type ListStats struct {
	Lists     int64
	Fetched   int64 // objects that were read from the source
	Evaluated int64 // objects compared with the selectors; lists from the cache do not count them
	Returned  int64 // objects in the results
}

// listCounts is the current state of a ListStats. It is safe for concurrent use.
type listCounts struct{ lists, fetched, evaluated, returned atomic.Int64 }

// add counts one list.
func (c *listCounts) add(fetched, evaluated, returned int) {
	c.lists.Add(1)
	c.fetched.Add(int64(fetched))
	c.evaluated.Add(int64(evaluated))
	c.returned.Add(int64(returned))
}

func (c *listCounts) stats() ListStats {
	return ListStats{
		Lists: c.lists.Load(), Fetched: c.fetched.Load(), Evaluated: c.evaluated.Load(), Returned: c.returned.Load(),
	}
}

// countCached counts a list that the cache has answered.
func (s *Store) countCached(p *listPlan, page *Page) {
	counts := &s.cache.cachedLists
	if _, _, ok := p.match.indexed(s.cache.fields); ok {
		counts = &s.cache.indexedLists
	}
	counts.add(p.fetched, 0, len(page.Records))
}
