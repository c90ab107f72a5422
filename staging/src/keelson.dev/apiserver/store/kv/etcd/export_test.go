// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"keelson.dev/api/clock"
)

// The tests that start an etcd are in the package etcd_test, because package embedded imports this
// package. They use these internals of it.

const (
	LeaseKeys   = leaseKeys
	GroupWrites = groupWrites
)

// Client returns the client of a store.
func Client(s *Store) *clientv3.Client { return s.client }

// Leases sets the clock by which a store shares leases, and returns the function that gets a lease.
func Leases(s *Store, c clock.Clock) func(ctx context.Context, ttl int64) (clientv3.LeaseID, error) {
	s.leases.clock = c
	return s.leases.get
}

// Answers reports which of the endpoints answer.
func Answers(ctx context.Context, s *Store, endpoints ...string) []bool {
	var out []bool
	for _, state := range s.readEndpoints(ctx, endpoints) {
		out = append(out, state.err == nil && state.status != nil)
	}
	return out
}

// Interpose puts a client between a store and etcd, for reads and transactions.
func Interpose(s *Store, c func(pb.KVClient) pb.KVClient) {
	s.transactions = c(s.transactions)
	s.client.KV = clientv3.NewKVFromKVClient(s.transactions, s.client)
}
