// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcd implements kv.Store on etcd: on an external cluster (Dial), or on an etcd in the same
// process (package embedded).
//
// If etcd has several members, a write can be lost when their leader changes: etcd answers it only after
// 7 s, with an error. The store notices that earlier and repeats the write, in such a way that it happens at
// most once; docs/decisions/0040-lost-writes.md has the reasons. If it cannot find out whether a write has
// happened, it returns etcd's own error for a timeout.
package etcd

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store/kv"
)

// overSized is part of the client's error for a message that is too large to send.
const overSized = "trying to send message larger than max"

// requestOverhead is the size in bytes of a transaction with one Put, without the value and without
// the key, which the transaction contains three times.
const requestOverhead = 64

// Store is a kv.Store on etcd. It is safe for concurrent use.
type Store struct {
	client *clientv3.Client
	// transactions sends transactions to the same etcd as client, with the options callOptions. The
	// client's own type for transactions copies each part of them several times.
	transactions pb.KVClient
	callOptions  []grpc.CallOption
	leases       *leases
	// leader is nil for an etcd of one member, in this process.
	leader *leader
	// fence is the revision of fenceKey as far as it is known.
	fence atomic.Int64
	// searches is the number of searches for lost creations.
	searches atomic.Int64

	revision func(ctx context.Context) (int64, error)
	size     func(ctx context.Context) (int64, error)
	close    func() error
	// defragment implements Defragment.
	defragment func(ctx context.Context, m Member) error
	// maxRequest bounds the request for one Put in bytes; 0 leaves the bound to etcd.
	maxRequest int
}

var _ kv.Store = (*Store)(nil)

func newStore(client *clientv3.Client, transactions pb.KVClient, reuse int64, clock clock.Clock) *Store {
	return &Store{client: client, transactions: transactions, leases: newLeases(client, reuse, clock)}
}

// Close releases the client, and stops an embedded etcd.
func (s *Store) Close() error { return s.close() }

// Get implements kv.Store.
func (s *Store) Get(ctx context.Context, key string) (*kv.Item, int64, error) {
	resp, err := s.client.Get(ctx, key)
	if err != nil {
		return nil, 0, translate(err)
	}
	s.leader.note(resp.Header)
	if len(resp.Kvs) == 0 {
		return nil, resp.Header.Revision, nil
	}
	kv0 := resp.Kvs[0]
	return &kv.Item{Key: key, Value: kv0.Value, ModRevision: kv0.ModRevision}, resp.Header.Revision, nil
}

// Range implements kv.Store.
func (s *Store) Range(ctx context.Context, opts kv.RangeOptions) (kv.RangeResult, error) {
	const first = "\x00" // the smallest key; as the end of a range, it means that the range has no end
	start, end := max(opts.Prefix, opts.Start, first), kv.PrefixEnd(opts.Prefix)
	if end == "" {
		end = first
	} else if start >= end {
		start = end // the range is empty, but etcd still returns the revision
	}
	resp, err := s.client.Get(ctx, start, clientv3.WithRange(end), clientv3.WithRev(opts.Revision),
		clientv3.WithLimit(opts.Limit))
	if err != nil {
		return kv.RangeResult{}, translate(err)
	}
	s.leader.note(resp.Header)
	res := kv.RangeResult{Revision: resp.Header.Revision, Count: resp.Count, Items: make([]kv.Item, len(resp.Kvs))}
	for i, e := range resp.Kvs {
		res.Items[i] = kv.Item{Key: string(e.Key), Value: e.Value, ModRevision: e.ModRevision}
		resp.Kvs[i] = nil // allow the item to be freed, so that a large page is not in memory twice
	}
	return res, nil
}

// Put implements kv.Store.
func (s *Store) Put(ctx context.Context, key string, value []byte, expect, ttl int64,
	conditions ...kv.Unchanged) (kv.WriteResult, error) {
	if s.maxRequest > 0 && len(value)+3*len(key)+requestOverhead > s.maxRequest {
		return kv.WriteResult{}, rpctypes.ErrRequestTooLarge
	}
	return s.make(ctx, &kv.Write{Key: key, Value: value, Expect: expect, TTL: ttl, Conditions: conditions})
}

// Delete implements kv.Store.
func (s *Store) Delete(ctx context.Context, key string, expect int64) (kv.WriteResult, error) {
	if expect == 0 { // etcd's comparison would succeed for an absent key, and the delete would be reported as done
		item, rev, err := s.Get(ctx, key)
		return kv.WriteResult{Revision: rev, Current: item}, err
	}
	return s.make(ctx, &kv.Write{Key: key, Expect: expect, Delete: true})
}

// WriteAll implements kv.Store.
func (s *Store) WriteAll(ctx context.Context, changes []kv.Change) (kv.WriteResult, error) {
	conditions, operations := make([]*pb.Compare, len(changes)), make([]*pb.RequestOp, len(changes))
	for i, c := range changes {
		conditions[i] = unchanged(c.Key, c.Expect)
		if c.Delete {
			operations[i] = deletion(c.Key)
		} else {
			operations[i] = put(c.Key, c.Value, clientv3.NoLease)
		}
	}
	resp, repeated, err := s.commit(ctx, &pb.TxnRequest{Compare: conditions, Success: operations})
	switch {
	case err == nil && repeated && !resp.Succeeded:
		return kv.WriteResult{}, rpctypes.ErrTimeout // the first attempt may have made the changes
	case err == nil:
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge),
		strings.Contains(err.Error(), overSized):
		return kv.WriteResult{}, kv.ErrTooLarge
	default:
		return kv.WriteResult{}, translate(err)
	}
	return kv.WriteResult{OK: resp.Succeeded, Revision: resp.Header.Revision}, nil
}

// Revision implements kv.Store.
func (s *Store) Revision(ctx context.Context) (int64, error) { return s.revision(ctx) }

// readRevision returns the revision in the header of a linearizable read, as Kubernetes does.
func (s *Store) readRevision(ctx context.Context) (int64, error) {
	resp, err := s.client.Get(ctx, kv.CompactRevKey, clientv3.WithCountOnly())
	if err != nil {
		return 0, translate(err)
	}
	s.leader.note(resp.Header)
	return resp.Header.Revision, nil
}

// Size returns the size of the database file of one member in bytes.
func (s *Store) Size(ctx context.Context) (int64, error) { return s.size(ctx) }

// readSize asks the members one after the other, and returns the first response.
func (s *Store) readSize(ctx context.Context) (int64, error) {
	err := errors.New("etcd has no endpoints")
	for _, endpoint := range s.client.Endpoints() {
		var status *clientv3.StatusResponse
		if status, err = s.client.Status(ctx, endpoint); err == nil {
			return status.DbSize, nil
		}
	}
	return 0, err
}

// Compact implements kv.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	_, err := s.client.Compact(ctx, revision)
	return translate(err)
}

// translate converts etcd's errors to those of package kv.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrCompacted):
		return kv.ErrCompacted
	case errors.Is(err, rpctypes.ErrFutureRev):
		return kv.ErrFutureRevision
	}
	return err
}
