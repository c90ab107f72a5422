// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"

	"keelson.dev/api/clock"
)

// DefaultQuota is the size in bytes at which an embedded etcd rejects further writes.
const DefaultQuota = 8 << 30

// Limits for one transaction. One transaction must be able to bind a gang (pods that are scheduled
// together) of 8,192 pods, with 8 KiB for each pod.
const (
	maxTxnOps   = 8192
	maxTxnBytes = 64 << 20
)

// Embedded configures an etcd in this process.
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

// Start starts an embedded etcd and returns a store on it once it is ready. Closing the store stops
// etcd.
func Start(ctx context.Context, e Embedded) (*Store, error) {
	if err := os.MkdirAll(e.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	server, err := embed.StartEtcd(e.config())
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		server.Close()
		return nil, fmt.Errorf("start etcd: %w", err)
	case <-server.Server.StopNotify():
		server.Close()
		return nil, errors.New("etcd stopped during start")
	case <-ctx.Done():
		server.Close()
		return nil, ctx.Err()
	}
	transactions := adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(server.Server))
	s := newStore(v3client.New(server.Server), transactions, e.LeaseReuse, e.Clock)
	s.maxRequest = embed.DefaultMaxRequestBytes
	// A single member has applied every acknowledged write, so a read of its local revision is
	// linearizable without a round of consensus.
	s.revision = func(context.Context) (int64, error) { return server.Server.KV().Rev(), nil }
	s.size = func(context.Context) (int64, error) { return server.Server.Backend().Size(), nil }
	s.defragment = func(context.Context, Member) error { return server.Server.Defragment() }
	formatting := e.keepReadable(s.client, func() bool { return server.Server.ClusterVersion() != nil })
	s.close = func() error {
		formatting()
		err := s.client.Close()
		server.Close()
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	return s, nil
}

// config returns etcd's configuration: one member, no listeners.
func (e Embedded) config() *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "keelson"
	cfg.Dir = e.Dir
	cfg.ListenPeerUrls, cfg.ListenClientUrls = nil, nil
	// etcd requires a URL for each member. No client or peer connects to this one.
	self := url.URL{Scheme: "http", Host: "localhost:0"}
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{self}, []url.URL{self}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.QuotaBackendBytes = e.QuotaBytes
	if e.QuotaBytes == 0 {
		cfg.QuotaBackendBytes = DefaultQuota
	}
	// A single member elects itself, so a short election timeout only makes it start earlier. A
	// shorter tick would cost more CPU while idle than it gains.
	cfg.TickMs, cfg.ElectionMs = 30, 150
	// etcd keeps this many log entries in memory for members that lag behind. An embedded etcd has
	// no other members.
	cfg.SnapshotCatchUpEntries = 100
	// At start, etcd reads its log and applies the entries after the last snapshot. It logs
	// warnings if there are more than 5,000 such entries.
	cfg.SnapshotCount, cfg.MaxWalFiles = 4000, 2
	// Acknowledged writes are safe in etcd's log. etcd writes them to its database in batches,
	// during which other writes wait.
	cfg.BackendBatchInterval = 500 * time.Millisecond
	// Allow one transaction to bind all pods of a gang. maxRequest keeps etcd's default limit for a
	// single object.
	cfg.MaxTxnOps, cfg.MaxRequestBytes = maxTxnOps, maxTxnBytes
	cfg.UnsafeNoFsync = e.UnsafeNoFsync
	cfg.WatchProgressNotifyInterval = 10 * time.Second
	cfg.EnableGRPCGateway = false
	cfg.Metrics = "basic"
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newLogger(e.Log.Handler()))
	return cfg
}
