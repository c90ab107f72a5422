// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"keelson.dev/apiserver/store/kv"
)

const (
	// loadPage is how many keys an initial load reads first; of the pages after
	// that each has about loadBytes, and at most loadMost keys. Small pages cost
	// more: etcd counts all the keys from the first of a page on.
	loadPage  = 1000
	loadBytes = 16 << 20
	loadMost  = 10_000
	loadRetry = 500 * time.Millisecond
)

// loadQueue holds the caches that want to be loaded. Nobody is loaded before it is
// open, and nobody served before the watch has come to where the store was then.
type loadQueue struct {
	wake   chan struct{}
	opened chan int64 // the revision to be reached before anybody is served

	mu     sync.Mutex
	caches []*cache
}

func newLoadQueue() *loadQueue {
	return &loadQueue{wake: make(chan struct{}, 1), opened: make(chan int64, 1)}
}

// open lets loads begin.
func (q *loadQueue) open(target int64) {
	select {
	case q.opened <- target:
	default: // it was open already, or is about to be
	}
}

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
	var target int64
	select {
	case <-ctx.Done():
		return
	case target = <-b.loads.opened:
	}
	for {
		for _, c := range b.loads.take() {
			wg.Go(func() { c.load(ctx, target) })
		}
		select {
		case <-ctx.Done():
			return
		case <-b.loads.wake:
		}
	}
}

// load reads the whole resource and, once the watch has come to target, puts it into
// service: reading takes the processors, and a watch that begins in the past mostly
// waits for etcd, which brings it up to date by so many revisions at a time. It gives up
// when the cache has been reset meanwhile, for which another load is under way.
func (c *cache) load(ctx context.Context, target int64) {
	for {
		gen, at, ok := c.loading()
		if !ok {
			return
		}
		records, rev, err := c.readAll(ctx, at)
		if err == nil {
			if c.b.reached(ctx, target) {
				c.install(gen, records, rev)
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, kv.ErrCompacted) {
			c.loadPresent(gen) // the past is gone, or it took too long
		} else {
			c.log.Error("Load failed", "err", err)
			if errors.Is(err, kv.ErrUnreadable) {
				c.fail(gen, err)
			}
			if !sleep(ctx, c.b.clock, loadRetry) {
				return
			}
		}
	}
}

// reached waits until the watch has come to a revision, or ctx is done.
func (b *Backend) reached(ctx context.Context, rev int64) bool {
	for b.fresh.wait(ctx, rev) != nil {
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}

// readAll reads all objects of the resource at one revision, page by page; at 0
// that of the moment. A page is read while the one before it is decoded, and the
// bytes of each are packed before the one after the next is read.
func (c *cache) readAll(ctx context.Context, at int64) ([]*Record, int64, error) {
	opts := kv.RangeOptions{Prefix: c.prefix, Limit: loadPage, Revision: at}
	var records []*Record
	for next := c.readPage(ctx, opts); ; {
		read := <-next
		if read.err != nil {
			return nil, 0, read.err
		}
		if opts.Revision == 0 {
			opts.Revision = read.Revision
		}
		if records == nil {
			records = make([]*Record, 0, read.Count)
		}
		last := int64(len(read.Items)) >= read.Count || len(read.Items) == 0
		if !last {
			opts.Start = read.Items[len(read.Items)-1].Key + "\x00"
			opts.Limit = nextPage(read.Items)
			next = c.readPage(ctx, opts)
		}
		records = append(records, c.decodeAll(read.Items)...)
		if last {
			return records, opts.Revision, nil
		}
	}
}

// nextPage is how many keys to read after items.
func nextPage(items []kv.Item) int64 {
	bytes := 0
	for i := range items {
		bytes += len(items[i].Value)
	}
	return int64(min(max(loadBytes*len(items)/max(bytes, 1), 1), loadMost))
}

// pageRead is what has come of reading a page.
type pageRead struct {
	kv.RangeResult
	err error
}

// readPage reads a page beside what its caller does, who takes the result.
func (c *cache) readPage(ctx context.Context, opts kv.RangeOptions) <-chan pageRead {
	out := make(chan pageRead, 1)
	go func() {
		res, err := c.b.kv.Range(ctx, opts)
		out <- pageRead{res, err}
	}()
	return out
}

// decodeAll makes the records of a page and packs them, on all processors.
func (c *cache) decodeAll(items []kv.Item) []*Record {
	records := make([]*Record, len(items))
	var wg sync.WaitGroup
	part := max(16, (len(items)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for from := 0; from < len(items); from += part {
		wg.Go(func() {
			mine := records[from:min(from+part, len(items))]
			for i := range mine {
				mine[i] = c.decode(&items[from+i], nil)
			}
			c.b.packs.block(mine)
		})
	}
	wg.Wait()
	return records
}
