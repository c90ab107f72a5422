// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"keelson.dev/apiserver/store/kv"
)

// Limits for the writes that are sent to etcd together, as one transaction. They are below etcd's
// default limits of operations and bytes, because a transaction needs more of both than its writes.
const (
	groupWrites = kv.MaxChanges / 2 // each write is a nested transaction with one operation
	groupBytes  = 1 << 20
)

// make makes one write. If its context has a group, make waits for the group's other writes and
// makes them together.
func (s *Store) make(ctx context.Context, w *kv.Write) (kv.WriteResult, error) {
	g := kv.GroupOf(ctx)
	if g == nil {
		s.write(ctx, w)
	} else {
		g.Make(w, func(all []*kv.Write) { s.writeEach(ctx, all) })
	}
	return w.Result, w.Err
}

// write makes the write w if its expected revision and its conditions hold. Otherwise it reads the
// key.
func (s *Store) write(ctx context.Context, w *kv.Write) {
	op, err := s.op(ctx, w)
	if err != nil {
		w.Err = err
		return
	}
	resp, err := s.client.Txn(ctx).If(expected(w)...).Then(op).Else(clientv3.OpGet(w.Key)).Commit()
	if err != nil {
		w.Err = translate(err)
		return
	}
	w.Result = outcome(w, (*pb.TxnResponse)(resp), resp.Header.Revision)
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
	size := 0
	for i, w := range all {
		size += len(w.Value) + 3*len(w.Key) + requestOverhead
		if i > 0 && (i == groupWrites || size > groupBytes || w.Key == all[i-1].Key) {
			return i
		}
	}
	return len(all)
}

// writeSome makes writes in one transaction, each as a nested transaction.
func (s *Store) writeSome(ctx context.Context, some []*kv.Write) {
	ops := make([]clientv3.Op, 0, len(some))
	sent := make([]*kv.Write, 0, len(some))
	for _, w := range some {
		op, err := s.op(ctx, w)
		if err != nil {
			w.Err = err
			continue
		}
		ops = append(ops, clientv3.OpTxn(expected(w), []clientv3.Op{op}, []clientv3.Op{clientv3.OpGet(w.Key)}))
		sent = append(sent, w)
	}
	if len(sent) == 0 {
		return
	}
	resp, err := s.client.Txn(ctx).Then(ops...).Commit()
	for i, w := range sent {
		if err != nil {
			w.Err = translate(err)
			continue
		}
		w.Result = outcome(w, resp.Responses[i].GetResponseTxn(), resp.Header.Revision)
	}
}

// op returns the etcd operation of the write w.
func (s *Store) op(ctx context.Context, w *kv.Write) (clientv3.Op, error) {
	if w.Delete {
		return clientv3.OpDelete(w.Key), nil
	}
	if w.TTL == 0 {
		return put(w.Key, w.Value), nil
	}
	lease, err := s.leases.get(ctx, w.TTL)
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("lease: %w", translate(err))
	}
	return put(w.Key, w.Value, clientv3.WithLease(lease)), nil
}

// expected returns the conditions of the write w in etcd's form.
func expected(w *kv.Write) []clientv3.Cmp {
	all := make([]clientv3.Cmp, 0, 1+len(w.Conditions))
	all = append(all, modifiedAt(w.Key, w.Expect))
	for _, c := range w.Conditions {
		all = append(all, unchanged(c.Key, c.Revision))
	}
	return all
}

// unchanged returns the condition that key exists and has not been written since revision.
func unchanged(key string, revision int64) clientv3.Cmp {
	// An absent key has revision 0, which must not match.
	return modifiedAt(key, max(revision, 1))
}

// modifiedAt returns the condition that key was last written at revision. clientv3.Compare returns
// the same, but copies the condition by reflection.
func modifiedAt(key string, revision int64) clientv3.Cmp {
	condition := clientv3.ModRevision(key)
	c := condition.GetCompare()
	c.Result, c.TargetUnion = pb.Compare_EQUAL, &pb.Compare_ModRevision{ModRevision: revision}
	return condition
}

// outcome returns the result of the write w from the response to the transaction that contained w.
func outcome(w *kv.Write, resp *pb.TxnResponse, revision int64) kv.WriteResult {
	res := kv.WriteResult{OK: resp.Succeeded, Revision: revision}
	if !resp.Succeeded {
		if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			res.Current = &kv.Item{Key: w.Key, Value: kvs[0].Value, ModRevision: kvs[0].ModRevision}
		}
	}
	return res
}
