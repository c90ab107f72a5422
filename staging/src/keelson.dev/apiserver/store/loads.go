// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"keelson.dev/apiserver/store/kv"
)

const (
	// loadPage is how many keys an initial load reads at a time.
	loadPage  = 1000
	loadRetry = 500 * time.Millisecond
)

// loadQueue holds the caches that want to be loaded. Nobody is served before it
// is open, which it is once the watch has its place.
type loadQueue struct {
	mu     *sync.Mutex
	caches []*cache
	wake   chan struct{}
	opened chan struct{}
	once   *sync.Once
}

func newLoadQueue() loadQueue {
	return loadQueue{mu: &sync.Mutex{}, wake: make(chan struct{}, 1), opened: make(chan struct{}), once: &sync.Once{}}
}

func (q *loadQueue) open() { q.once.Do(func() { close(q.opened) }) }

func (q *loadQueue) add(c *cache) {
	q.mu.Lock()
	q.caches = append(q.caches, c)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *loadQueue) take() []*cache {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.caches
	q.caches = nil
	return out
}

// runLoads loads caches as they ask for it, each in a goroutine of its own.
func (b *Backend) runLoads(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	select {
	case <-ctx.Done():
		return
	case <-b.loads.opened:
	}
	for {
		for _, c := range b.loads.take() {
			wg.Go(func() { c.load(ctx) })
		}
		select {
		case <-ctx.Done():
			return
		case <-b.loads.wake:
		}
	}
}

// load reads the whole resource and puts it into service. It gives up when the
// cache has been reset meanwhile, for which another load is under way.
func (c *cache) load(ctx context.Context) {
	for {
		gen, ok := c.loading()
		if !ok {
			return
		}
		items, rev, err := c.readAll(ctx)
		if err == nil {
			records := make([]*Record, len(items))
			for i := range items {
				records[i] = c.decode(&items[i])
				items[i].Value = nil
			}
			c.install(gen, records, rev)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, kv.ErrCompacted) { // else it took too long: at once again
			c.log.Error("Load failed", "err", err)
			if !sleep(ctx, c.b.clock, loadRetry) {
				return
			}
		}
	}
}

// readAll reads all keys of the resource at one revision, page by page.
func (c *cache) readAll(ctx context.Context) ([]kv.Item, int64, error) {
	opts := kv.RangeOptions{Prefix: c.prefix, Limit: loadPage}
	var items []kv.Item
	for {
		res, err := c.b.kv.Range(ctx, opts)
		if err != nil {
			return nil, 0, err
		}
		if opts.Revision == 0 {
			opts.Revision = res.Revision
			items = make([]kv.Item, 0, res.Count)
		}
		items = append(items, res.Items...)
		if int64(len(res.Items)) >= res.Count || len(res.Items) == 0 {
			return items, opts.Revision, nil
		}
		opts.Start = res.Items[len(res.Items)-1].Key + "\x00"
	}
}
