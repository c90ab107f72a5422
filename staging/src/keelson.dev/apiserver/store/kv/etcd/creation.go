// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"keelson.dev/apiserver/store/kv"
)

// fenceKey is the key whose revision each creation in an etcd of several members compares. Once it has been
// written, a creation that was sent before cannot happen any more. It is never deleted.
const fenceKey = "keelson_creation_fence"

// progressInterval is the time between two requests for the progress of a watch.
const progressInterval = 100 * time.Millisecond

// fenced reports whether a write creates its key in an etcd of several members.
func (s *Store) fenced(w *kv.Write) bool { return s.leader != nil && w.Expect == 0 && !w.Delete }

// create makes a write that creates its key, with an operation. A creation that is lost must not simply be
// repeated: if the first one happened late, after the key was created by the second one and deleted, the
// object would exist again. So the fence comes first. Afterwards the history of the key shows whether the
// creation has happened.
func (s *Store) create(ctx context.Context, w *kv.Write, operation *pb.RequestOp) (kv.WriteResult, error) {
	for {
		since, fence := s.leader.revision.Load(), s.fence.Load()
		t := transaction(w, operation)
		t.Compare = append(t.Compare, modifiedAt(fenceKey, fence))
		t.Failure = append(t.Failure, read(fenceKey))
		resp, err := s.attempt(ctx, t)
		switch {
		case errors.Is(err, errLost):
			created, err := s.settle(ctx, w, since, fence)
			if created != 0 || err != nil {
				return kv.WriteResult{OK: created != 0, Revision: created}, err
			}
			continue
		case err != nil:
			return kv.WriteResult{}, err
		}
		res, err := outcome(w, resp, resp.Header.Revision, false)
		if err != nil || res.OK || res.Current != nil {
			return res, err
		}
		now := modRevision(resp.Responses[1])
		if now == fence {
			return res, nil // one of the conditions does not hold
		}
		s.fence.CompareAndSwap(fence, now)
	}
}

// settle returns the revision of a lost creation, which was sent at or after the revision since. If it returns
// 0, the creation has not happened, and will not.
func (s *Store) settle(ctx context.Context, w *kv.Write, since, fence int64) (int64, error) {
	raised, err := s.raise(ctx, fence)
	if err != nil {
		return 0, err
	}
	return s.creation(ctx, w, since, raised)
}

// raise returns the revision of the fence after another write of it than that at the revision fence.
func (s *Store) raise(ctx context.Context, fence int64) (int64, error) {
	for {
		if now := s.fence.Load(); now != fence {
			return now, nil
		}
		resp, err := s.attempt(ctx, &pb.TxnRequest{Compare: []*pb.Compare{modifiedAt(fenceKey, fence)},
			Success: []*pb.RequestOp{put(fenceKey, nil, clientv3.NoLease)}, Failure: []*pb.RequestOp{read(fenceKey)}})
		switch {
		case errors.Is(err, errLost): // repeating is safe, because both have the same condition
		case err != nil:
			return 0, err
		case resp.Succeeded:
			s.fence.CompareAndSwap(fence, resp.Header.Revision)
		default:
			s.fence.CompareAndSwap(fence, modRevision(resp.Responses[0]))
		}
	}
}

// creation returns the revision after since and before until at which w was made, or 0. It recognizes a
// creation by its value: API objects have unique IDs.
func (s *Store) creation(ctx context.Context, w *kv.Write, since, until int64) (int64, error) {
	// With a stream of its own, the search waits for no other watch, and is not answered for another one.
	stream := metadata.AppendToOutgoingContext(context.Background(), "search",
		strconv.FormatInt(s.searches.Add(1), 10))
	history, err := s.watch(ctx, stream, w.Key, since+1)
	if err != nil {
		return 0, err
	}
	defer history.Stop()
	for {
		batch, err := nextOrProgress(ctx, history)
		if errors.Is(err, kv.ErrCompacted) {
			return 0, rpctypes.ErrTimeout // what has happened is not known
		}
		if err != nil {
			return 0, err
		}
		for _, e := range batch.Events {
			if e.Key == w.Key && !e.Deleted && bytes.Equal(e.Value, w.Value) {
				return e.ModRevision, nil
			}
		}
		if batch.Revision >= until {
			return 0, nil
		}
	}
}

// nextOrProgress returns the next batch of a watch. It requests one with the progress while there is none.
func nextOrProgress(ctx context.Context, w kv.Watch) (kv.Batch, error) {
	for {
		limited, cancel := context.WithTimeout(ctx, progressInterval)
		batch, err := w.Next(limited)
		cancel()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return batch, err
		}
		if err := w.RequestProgress(ctx); err != nil {
			return kv.Batch{}, err
		}
	}
}

// modRevision returns the revision of the only key that a read has returned, or 0 if the key is absent.
func modRevision(response *pb.ResponseOp) int64 {
	if kvs := response.GetResponseRange().Kvs; len(kvs) > 0 {
		return kvs[0].ModRevision
	}
	return 0
}
