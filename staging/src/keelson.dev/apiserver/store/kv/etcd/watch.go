// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"keelson.dev/apiserver/store/kv"
)

// watch is an etcd watch. The watches of a Store share a stream, which answers a progress request only when
// all of them have caught up, and then to all of them. The search for a lost creation has its own stream.
type watch struct {
	client *clientv3.Client
	ctx    context.Context // context of the etcd watch; its metadata identifies the stream
	cancel context.CancelFunc
	ch     clientv3.WatchChan
	rev    int64
}

var _ kv.Watch = (*watch)(nil)

// Watch implements kv.Store. If a member loses its leader, its watch ends and the client continues
// on another member.
func (s *Store) Watch(ctx context.Context, prefix string, from int64) (kv.Watch, error) {
	return s.watch(ctx, context.Background(), prefix, from)
}

// watch implements Watch. Watches whose stream has the same outgoing metadata share a gRPC stream.
func (s *Store) watch(ctx, stream context.Context, prefix string, from int64) (kv.Watch, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	wctx, cancel := context.WithCancel(clientv3.WithRequireLeader(stream))
	stop := context.AfterFunc(ctx, cancel)
	// The client returns when etcd has made the watch.
	ch := s.client.Watch(wctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithProgressNotify())
	if !stop() {
		return nil, ctx.Err()
	}
	return &watch{client: s.client, ctx: wctx, cancel: cancel, ch: ch, rev: from - 1}, nil
}

// Next implements kv.Watch.
func (w *watch) Next(ctx context.Context) (kv.Batch, error) {
	for {
		select {
		case <-ctx.Done():
			return kv.Batch{}, ctx.Err()
		case resp, ok := <-w.ch:
			if !ok {
				return kv.Batch{}, kv.ErrClosed
			}
			if resp.CompactRevision != 0 {
				return kv.Batch{}, kv.ErrCompacted
			}
			if err := resp.Err(); err != nil {
				return kv.Batch{}, translate(err)
			}
			if b, ok := w.batch(resp); ok {
				return b, nil
			}
		}
	}
}

// batch converts a response. Only a progress notification has the progress of the watch in its
// header: the header of a response with events has the store's revision, which may be ahead of the
// events.
func (w *watch) batch(resp clientv3.WatchResponse) (kv.Batch, bool) {
	switch {
	case resp.IsProgressNotify():
		w.rev = max(w.rev, resp.Header.Revision)
		return kv.Batch{Revision: w.rev}, true
	case len(resp.Events) == 0:
		return kv.Batch{}, false // this response only says that the watch was created
	}
	b := kv.Batch{Events: make([]kv.Event, len(resp.Events))}
	for i, e := range resp.Events {
		b.Events[i] = kv.Event{
			Item:    kv.Item{Key: string(e.Kv.Key), Value: e.Kv.Value, ModRevision: e.Kv.ModRevision},
			Deleted: e.Type == clientv3.EventTypeDelete,
		}
	}
	w.rev = b.Events[len(b.Events)-1].ModRevision
	b.Revision = w.rev
	return b, true
}

// RequestProgress implements kv.Watch. While the stream is being connected again, it waits.
func (w *watch) RequestProgress(ctx context.Context) error {
	limited, cancel := context.WithCancel(w.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	if err := w.client.RequestProgress(limited); err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	return nil
}

// Stop implements kv.Watch.
func (w *watch) Stop() { w.cancel() }
