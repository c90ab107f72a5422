// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"strings"
	"sync"

	"keelson.dev/apiserver/store/kv"
)

// prefixCaches holds the caches of one key prefix. Usually there is one; a custom resource has one
// for each version with a store of its own.
//
// Invariant: it is immutable. To add or remove a cache, cacheTable replaces the prefixCaches.
type prefixCaches struct{ caches []*cache }

// apply passes events of the key-value store to all caches of the prefix. p may be nil.
func (p *prefixCaches) apply(events []kv.Event) {
	if p == nil {
		return
	}
	for _, c := range p.caches {
		c.apply(events)
	}
}

// cacheTable finds the caches of a key. It is safe for concurrent use.
//
// Invariant: the cache of each open store is in the table, under the store's prefix.
type cacheTable struct {
	root string // prefix of all keys, with a slash at its end

	mu       sync.RWMutex
	byPrefix map[string]*prefixCaches // keys are "<prefix>/", without root
	depth    int                      // largest number of path segments of a prefix
}

// all returns the caches of all prefixes.
func (t *cacheTable) all() []*cache {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []*cache
	for _, p := range t.byPrefix {
		out = append(out, p.caches...)
	}
	return out
}

// find returns the caches that a full key belongs to: those with the longest matching prefix. It
// returns nil if no prefix matches.
func (t *cacheTable) find(key string) *prefixCaches {
	t.mu.RLock()
	defer t.mu.RUnlock()
	rel := strings.TrimPrefix(key, t.root)
	var found *prefixCaches
	for i, segments := 0, 0; i < len(rel) && segments < t.depth; i++ {
		if rel[i] != '/' {
			continue
		}
		segments++
		if p, ok := t.byPrefix[rel[:i+1]]; ok {
			found = p
		}
	}
	return found
}

// siblings returns the caches of c's prefix, including c. If c is no longer registered, it returns
// only c.
func (t *cacheTable) siblings(c *cache) []*cache {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p := t.byPrefix[strings.TrimPrefix(c.prefix, t.root)]
	if p == nil || !slices.Contains(p.caches, c) {
		return []*cache{c}
	}
	return p.caches
}

func (t *cacheTable) add(prefix string, c *cache) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &prefixCaches{}
	if old := t.byPrefix[prefix]; old != nil {
		p.caches = append(p.caches, old.caches...)
	}
	p.caches = append(p.caches, c)
	t.byPrefix[prefix] = p
	t.depth = max(t.depth, strings.Count(prefix, "/"))
}

func (t *cacheTable) remove(prefix string, c *cache) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.byPrefix[prefix]
	if old == nil {
		return
	}
	p := &prefixCaches{}
	for _, other := range old.caches {
		if other != c {
			p.caches = append(p.caches, other)
		}
	}
	if t.byPrefix[prefix] = p; len(p.caches) == 0 {
		delete(t.byPrefix, prefix)
	}
}
