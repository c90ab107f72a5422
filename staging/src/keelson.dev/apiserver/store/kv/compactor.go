// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kv

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"keelson.dev/api/clock"
)

// CompactRevKey is the key by which all API servers on one store agree on who
// compacts. It is Kubernetes' key, with Kubernetes' value (the revision last
// compacted), so that servers of both kinds can share a store.
const CompactRevKey = "compact_rev_key"

// Compactor drops history that is older than its interval. Several may run on
// one store: in each interval one of them wins the write of a common key, and
// the others see that and stand back.
type Compactor struct {
	Store    Store
	Clock    clock.Clock
	Interval time.Duration
	Log      *slog.Logger
	// Compacted is told up to where history has been dropped, here or by another
	// server, as soon as that is seen: whoever keeps some of it for himself must not
	// show it longer than the store would. May be nil.
	Compacted func(rev int64)

	seen int64 // ModRevision of the common key at our last look
	rev  int64 // the store's revision at our last look; 0 before the first
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
				c.Log.Error("Compaction failed", "err", err)
			}
		}
	}
}

// Step does one interval's work: it compacts to the revision of the step
// before, if no other server has done so meanwhile.
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
				c.tell(rev)
			}
		}
		return nil
	}
	old := c.rev
	c.rev, c.seen = res.Revision, res.Revision
	if old == 0 {
		return nil // the first look: we do not know yet what is older than an interval
	}
	if err := c.Store.Compact(ctx, old); err != nil {
		return err
	}
	c.tell(old)
	return nil
}

func (c *Compactor) tell(rev int64) {
	if c.Compacted != nil {
		c.Compacted(rev)
	}
}

// CompactedRev is the revision that the value of CompactRevKey tells; another value than
// a number is as good as none.
func CompactedRev(item *Item) (int64, bool) {
	rev, err := strconv.ParseInt(string(item.Value), 10, 64)
	return rev, err == nil
}
