// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"keelson.dev/apiserver/store/kv"
)

// Limits for the writes that are sent to etcd together, as one transaction. Those of writes and bytes
// are below etcd's default limits, because a transaction may need more of both than its writes.
const (
	groupWrites     = kv.MaxChanges / 2 // each write may become a nested transaction with one operation
	groupConditions = kv.MaxChanges
	groupBytes      = 1 << 20
)

// make makes one write. If its context has a group, make waits for the group's other writes and
// makes them together.
func (s *Store) make(ctx context.Context, w *kv.Write) (kv.WriteResult, error) {
	g := kv.GroupOf(ctx)
	if g == nil || s.fenced(w) {
		s.write(ctx, w)
	} else {
		g.Make(w, func(all []*kv.Write) { s.writeEach(ctx, all) })
	}
	return w.Result, w.Err
}

// write makes the write w if its expected revision and its conditions hold. Otherwise it reads the
// key.
func (s *Store) write(ctx context.Context, w *kv.Write) {
	operation, err := s.operation(ctx, w)
	if err != nil {
		w.Err = err
		return
	}
	if s.fenced(w) {
		w.Result, err = s.create(ctx, w, operation)
		w.Err = translate(err)
		return
	}
	resp, repeated, err := s.commit(ctx, transaction(w, operation))
	if err != nil {
		w.Err = translate(err)
		return
	}
	w.Result, w.Err = outcome(w, resp, resp.Header.Revision, repeated)
}

// writeEach commits the writes of a group, in as few transactions as possible.
func (s *Store) writeEach(ctx context.Context, all []*kv.Write) {
	// Watches deliver the events of one revision in this order, and the events of one resource have
	// to be adjacent.
	slices.SortStableFunc(all, func(a, b *kv.Write) int { return cmp.Compare(a.Key, b.Key) })
	for len(all) > 0 {
		n := batchSize(all)
		if n == 1 {
			s.write(ctx, all[0])
		} else {
			s.writeSome(ctx, all[:n])
		}
		all = all[n:]
	}
}

// batchSize returns how many of the first writes fit into one transaction: at least one, and no key
// twice.
func batchSize(all []*kv.Write) int {
	size, conditions := 0, 0
	for i, w := range all {
		size += len(w.Value) + 3*len(w.Key) + requestOverhead
		conditions += 1 + len(w.Conditions)
		if i > 0 && (i == groupWrites || conditions > groupConditions || size > groupBytes || w.Key == all[i-1].Key) {
			return i
		}
	}
	return len(all)
}

// writeSome makes writes in one transaction. First it tries a simple one, which writes nothing
// unless all conditions of all writes hold. If one does not, each write becomes a nested transaction.
func (s *Store) writeSome(ctx context.Context, some []*kv.Write) {
	conditions := make([]*pb.Compare, 0, len(some))
	operations := make([]*pb.RequestOp, 0, len(some))
	sent := make([]*kv.Write, 0, len(some))
	for _, w := range some {
		operation, err := s.operation(ctx, w)
		if err != nil {
			w.Err = err
			continue
		}
		conditions, operations, sent = append(conditions, expected(w)...), append(operations, operation), append(sent, w)
	}
	if len(sent) == 0 {
		return
	}
	resp, repeated, err := s.commit(ctx, &pb.TxnRequest{Compare: conditions, Success: operations})
	if err == nil && !resp.Succeeded {
		s.writeNested(ctx, sent, operations, repeated)
		return
	}
	for _, w := range sent {
		if err != nil {
			w.Err = translate(err)
			continue
		}
		w.Result = kv.WriteResult{OK: true, Revision: resp.Header.Revision}
	}
}

// writeNested makes writes in one transaction, each as a nested transaction with its operation. repeated
// reports whether they may already have been made.
func (s *Store) writeNested(ctx context.Context, writes []*kv.Write, operations []*pb.RequestOp, repeated bool) {
	nested := make([]*pb.RequestOp, len(writes))
	for i, w := range writes {
		nested[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: transaction(w, operations[i])}}
	}
	resp, again, err := s.commit(ctx, &pb.TxnRequest{Success: nested})
	for i, w := range writes {
		if err != nil {
			w.Err = translate(err)
			continue
		}
		w.Result, w.Err = outcome(w, resp.Responses[i].GetResponseTxn(), resp.Header.Revision, repeated || again)
	}
}

// commit sends a transaction, and repeats it if it is lost. Each of its operations must depend on a key that
// exists at an expected revision, so that it happens at most once. It returns the errors of etcd's client.
func (s *Store) commit(ctx context.Context, t *pb.TxnRequest) (resp *pb.TxnResponse, repeated bool, err error) {
	for {
		resp, err = s.attempt(ctx, t)
		if !errors.Is(err, errLost) {
			return resp, repeated, err
		}
		repeated = true
	}
}

// attempt sends a transaction. It returns the errors of etcd's client, or errLost.
func (s *Store) attempt(ctx context.Context, t *pb.TxnRequest) (*pb.TxnResponse, error) {
	ctx, stop := s.leader.follow(ctx)
	defer stop()
	resp, err := s.transactions.Txn(ctx, t, s.callOptions...)
	if err != nil {
		return nil, lost(ctx, clientv3.ContextError(ctx, err))
	}
	s.leader.note(resp.Header)
	return resp, nil
}

// transaction returns a transaction that makes the write w by its operation if its conditions hold,
// and otherwise reads the key.
func transaction(w *kv.Write, operation *pb.RequestOp) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: expected(w), Success: []*pb.RequestOp{operation}, Failure: []*pb.RequestOp{read(w.Key)},
	}
}

// operation returns the etcd operation of the write w.
func (s *Store) operation(ctx context.Context, w *kv.Write) (*pb.RequestOp, error) {
	if w.Delete {
		return deletion(w.Key), nil
	}
	if w.TTL == 0 {
		return put(w.Key, w.Value, clientv3.NoLease), nil
	}
	lease, err := s.leases.get(ctx, w.TTL)
	if err != nil {
		return nil, fmt.Errorf("lease: %w", translate(err))
	}
	return put(w.Key, w.Value, lease), nil
}

// put returns the operation that sets key to value.
func put(key string, value []byte, lease clientv3.LeaseID) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
		RequestPut: &pb.PutRequest{Key: []byte(key), Value: value, Lease: int64(lease)}}}
}

// read returns the operation that reads key.
func read(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key)}}}
}

// deletion returns the operation that deletes key.
func deletion(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
}

// expected returns the conditions of the write w in etcd's form.
func expected(w *kv.Write) []*pb.Compare {
	all := make([]*pb.Compare, 0, 1+len(w.Conditions))
	all = append(all, modifiedAt(w.Key, w.Expect))
	for _, c := range w.Conditions {
		all = append(all, unchanged(c.Key, c.Revision))
	}
	return all
}

// unchanged returns the condition that key exists and has not been written since revision.
func unchanged(key string, revision int64) *pb.Compare {
	// An absent key has revision 0, which must not match.
	return modifiedAt(key, max(revision, 1))
}

// modifiedAt returns the condition that key was last written at revision.
func modifiedAt(key string, revision int64) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Result: pb.Compare_EQUAL, Target: pb.Compare_MOD,
		TargetUnion: &pb.Compare_ModRevision{ModRevision: revision},
	}
}

// outcome returns the result of the write w from the response to the transaction that contained w. If the
// transaction was repeated, w may be the reason why its condition did not hold.
func outcome(w *kv.Write, resp *pb.TxnResponse, revision int64, repeated bool) (kv.WriteResult, error) {
	res := kv.WriteResult{OK: resp.Succeeded, Revision: revision}
	if res.OK {
		return res, nil
	}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		res.Current = &kv.Item{Key: w.Key, Value: kvs[0].Value, ModRevision: kvs[0].ModRevision}
	}
	if repeated && (res.Current == nil || res.Current.ModRevision != w.Expect) {
		return kv.WriteResult{}, rpctypes.ErrTimeout
	}
	return res, nil
}
