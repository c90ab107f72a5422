// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"sort"
	"strings"
	"sync"

	"keelson.dev/apiserver/store/kv"
)

// maxBatch is the maximum number of events in a batch. A batch exceeds it only to keep all events
// of one revision together.
const maxBatch = 1000

// watch is a position in the store's log.
type watch struct {
	s      *Store
	prefix string
	next   int64 // revision of the first event to deliver

	stopOnce sync.Once
	stopped  chan struct{}
	progress chan struct{}
}

var _ kv.Watch = (*watch)(nil)

// Watch implements kv.Store.
func (s *Store) Watch(ctx context.Context, prefix string, from int64) (kv.Watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(ctx); err != nil {
		return nil, err
	}
	return &watch{s: s, prefix: prefix, next: from, stopped: make(chan struct{}), progress: make(chan struct{}, 1)}, nil
}

// Next implements kv.Watch.
func (w *watch) Next(ctx context.Context) (kv.Batch, error) {
	for {
		batch, changed, err := w.take()
		if err != nil || len(batch.Events) > 0 {
			return batch, err
		}
		select {
		case <-ctx.Done():
			return kv.Batch{}, ctx.Err()
		case <-w.stopped:
			return kv.Batch{}, kv.ErrClosed
		case <-w.progress:
			w.s.mu.Lock()
			rev := w.s.rev
			w.s.mu.Unlock()
			if rev < w.next { // no event since the call of take
				return kv.Batch{Revision: rev}, nil
			}
			_ = w.RequestProgress(ctx)
		case <-changed:
		}
	}
}

// RequestProgress implements kv.Watch.
func (w *watch) RequestProgress(context.Context) error {
	select {
	case w.progress <- struct{}{}:
	default:
	}
	return nil
}

// Stop implements kv.Watch.
func (w *watch) Stop() { w.stopOnce.Do(func() { close(w.stopped) }) }

// take returns the next events. If there are none, it returns the channel that the next write
// closes.
func (w *watch) take() (kv.Batch, <-chan struct{}, error) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.stopped:
		return kv.Batch{}, nil, kv.ErrClosed
	default:
	}
	if s.closed {
		return kv.Batch{}, nil, kv.ErrClosed
	}
	if w.next <= s.compacted {
		return kv.Batch{}, nil, kv.ErrCompacted
	}
	i := sort.Search(len(s.log), func(i int) bool { return s.log[i].ModRevision >= w.next })
	var batch kv.Batch
	for ; i < len(s.log); i++ {
		e := &s.log[i]
		if len(batch.Events) >= maxBatch && e.ModRevision != batch.Revision {
			break
		}
		batch.Revision = e.ModRevision
		if strings.HasPrefix(e.Key, w.prefix) {
			batch.Events = append(batch.Events, e.Event)
		}
	}
	w.next = max(w.next, batch.Revision+1)
	return batch, s.changed, nil
}
