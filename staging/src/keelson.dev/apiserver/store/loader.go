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
	// loadPage is the number of keys in the first page of a load. The following pages have about
	// loadBytes bytes and at most loadMaxKeys keys. Small pages cost more, because for each page
	// etcd counts all keys after the first one.
	loadPage    = 1000
	loadBytes   = 16 << 20
	loadMaxKeys = 10_000
	loadRetry   = 500 * time.Millisecond
)

// loader loads queued caches, each in a goroutine of its own.
//
// Invariant: no cache is loaded before start, and none becomes ready before the watch has reached
// the revision that the key-value store had at the start. So no client of a server that has just
// started reads a state that is older than the start.
type loader struct {
	wake    chan struct{}
	started chan int64 // receives the revision that the watch must reach before any cache becomes ready
	barrier *revisionBarrier

	mu     sync.Mutex
	queued []*cache
}

func newLoader(barrier *revisionBarrier) *loader {
	return &loader{wake: make(chan struct{}, 1), started: make(chan int64, 1), barrier: barrier}
}

// start allows loads to begin. target is the revision that the watch must reach before a cache
// becomes ready. Only the first call has an effect.
func (l *loader) start(target int64) {
	select {
	case l.started <- target:
	default:
	}
}

// add queues the cache of a resource for loading.
func (l *loader) add(c *cache) {
	l.mu.Lock()
	l.queued = append(l.queued, c)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *loader) take() []*cache {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.queued
	l.queued = nil
	return out
}

// run loads the queued caches of resources until ctx is done.
func (l *loader) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	var target int64
	select {
	case <-ctx.Done():
		return
	case target = <-l.started:
	}
	for {
		for _, c := range l.take() {
			wg.Go(func() { l.load(ctx, c, target) })
		}
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
	}
}

// load reads all objects of a resource, waits until the watch has reached target, and installs the
// objects in the cache. It retries until it succeeds. It returns early if the cache has been reset,
// because the reset has queued another load. Reading before waiting saves time: the watch receives
// old events from etcd in limited batches, and meanwhile the processors decode the objects.
func (l *loader) load(ctx context.Context, c *cache, target int64) {
	for {
		gen, at, ok := c.wantsLoad()
		if !ok {
			return
		}
		records, rev, err := c.readAll(ctx, at)
		if err == nil {
			if l.barrier.waitUntil(ctx, target) {
				c.install(gen, records, rev)
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, kv.ErrCompacted) {
			c.loadPresent(gen) // the past state has been compacted, before or during the load
		} else {
			c.log.Error("Failed to load the cache of a resource", "err", err)
			if !sleep(ctx, c.b.clock, loadRetry) {
				return
			}
		}
	}
}

// readAll reads all objects of the resource at one revision; 0 means the present one. It reads each
// page while it decodes and packs the page before.
func (c *cache) readAll(ctx context.Context, at int64) ([]*Record, int64, error) {
	opts := kv.RangeOptions{Prefix: c.prefix, Limit: loadPage, Revision: at}
	var records []*Record
	// As in Kubernetes, a load counts as a list, even if it fails.
	defer func() { c.storedLists.add(len(records), len(records), len(records)) }()
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
			opts.Limit = kv.NextLimit(read.Items, loadBytes, loadMaxKeys)
			next = c.readPage(ctx, opts)
		}
		records = append(records, c.decodeAll(read.Items)...)
		if last {
			return records, opts.Revision, nil
		}
	}
}

// pageRead is the result of reading a page.
type pageRead struct {
	kv.RangeResult
	err error
}

// readPage starts to read a page in a goroutine. The returned channel receives the result.
func (c *cache) readPage(ctx context.Context, opts kv.RangeOptions) <-chan pageRead {
	out := make(chan pageRead, 1)
	go func() {
		res, err := c.b.kv.Range(ctx, opts)
		out <- pageRead{res, err}
	}()
	return out
}

// decodeAll creates the records of a page and packs them, on all processors.
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
			c.b.packer.packBlock(mine)
		})
	}
	wg.Wait()
	return records
}
