// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"log/slog"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"keelson.dev/api/clock"
)

// DefaultQuota is the size in bytes at which an embedded etcd rejects further writes.
const DefaultQuota = 8 << 30

// Embedded configures an etcd in this process, which embedded.Start starts.
type Embedded struct {
	// Dir is the data directory. One process at a time may use it.
	Dir string
	// QuotaBytes bounds the database; 0 means DefaultQuota.
	QuotaBytes int64
	// UnsafeNoFsync does not sync writes to disk, for tests.
	UnsafeNoFsync bool
	// LeaseReuse is the number of seconds for which a lease accepts further keys with the same TTL.
	LeaseReuse int64
	// Readable is an earlier release of etcd, for example "3.6", that must be able to use the data
	// directory after this etcd has stopped. It must be the release before this etcd's. If it is
	// empty, the data is kept in the present format.
	Readable string
	Clock    clock.Clock
	Log      *slog.Logger
}

// Local is an etcd in this process, with the functions that need no request.
type Local struct {
	Client *clientv3.Client
	// Transactions sends transactions to the same etcd as Client.
	Transactions pb.KVClient
	// LeaseReuse is the number of seconds for which a lease accepts further keys with the same TTL.
	LeaseReuse int64
	// MaxRequest bounds the request for one Put in bytes.
	MaxRequest int
	Clock      clock.Clock
	// Revision and Size return the current revision and the size of the database in bytes.
	Revision, Size func() int64
	Defragment     func() error
	// Close closes Client and stops etcd.
	Close func() error
}

// NewLocal returns a store on l. Closing the store calls l.Close.
func NewLocal(l Local) *Store {
	s := newStore(l.Client, l.Transactions, l.LeaseReuse, l.Clock)
	s.maxRequest, s.close = l.MaxRequest, l.Close
	s.revision = func(context.Context) (int64, error) { return l.Revision(), nil }
	s.size = func(context.Context) (int64, error) { return l.Size(), nil }
	s.defragment = func(context.Context, Member) error { return l.Defragment() }
	return s
}
