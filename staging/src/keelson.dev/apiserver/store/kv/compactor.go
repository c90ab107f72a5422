// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kv

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"keelson.dev/api/clock"
)

// CompactRevKey is the key with which the API servers on one store agree which of them compacts it.
// Key and value (the revision last compacted) are those of Kubernetes, so that Kubernetes' servers
// can share a store with these.
const CompactRevKey = "compact_rev_key"

// Compactor compacts states that are older than its interval. Several compactors may run on one
// store: in each interval one of them succeeds in writing CompactRevKey, and the others skip the
// interval.
type Compactor struct {
	Store    Store
	Clock    clock.Clock
	Interval time.Duration
	Log      *slog.Logger
	// Compacted is called with the revision up to which this or another server has compacted, so
	// that a cache can stop serving states that the store no longer has. It may be nil.
	Compacted func(rev int64)

	seen int64 // ModRevision of CompactRevKey at the last step
	rev  int64 // revision of the store at the last step; 0 before the first step
}

// Run compacts until ctx is done.
func (c *Compactor) Run(ctx context.Context) {
	ticker := c.Clock.NewTicker(c.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if err := c.Step(ctx); err != nil && ctx.Err() == nil {
				c.Log.Error("Failed to compact the history of the key-value store", "err", err)
			}
		}
	}
}

// Step compacts to the revision that the previous step has recorded, unless another server has
// compacted meanwhile. Run calls it once in each interval.
func (c *Compactor) Step(ctx context.Context) error {
	res, err := c.Store.Put(ctx, CompactRevKey, []byte(strconv.FormatInt(c.rev, 10)), c.seen, 0)
	if err != nil {
		return err
	}
	if !res.OK {
		c.rev, c.seen = res.Revision, 0
		if res.Current != nil {
			c.seen = res.Current.ModRevision
			if rev, ok := CompactedRev(res.Current); ok {
				c.report(rev)
			}
		}
		return nil
	}
	old := c.rev
	c.rev, c.seen = res.Revision, res.Revision
	if old == 0 {
		return nil // this is the first step, so it is unknown which states are older than an interval
	}
	// ErrCompacted means that another process has already compacted to a later revision.
	if err := c.Store.Compact(ctx, old); err != nil && !errors.Is(err, ErrCompacted) {
		return err
	}
	c.report(old)
	return nil
}

func (c *Compactor) report(rev int64) {
	if c.Compacted != nil {
		c.Compacted(rev)
	}
}

// CompactedRev returns the revision in the value of CompactRevKey. It returns false if the value is
// not a number.
func CompactedRev(item *Item) (int64, bool) {
	rev, err := strconv.ParseInt(string(item.Value), 10, 64)
	return rev, err == nil
}
