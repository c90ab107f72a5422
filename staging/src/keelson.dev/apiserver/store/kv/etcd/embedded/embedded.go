// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package embedded starts an etcd in this process, for a store of package etcd. It is a package of its
// own so that a program that connects to other etcd servers, or a test that needs none, does not
// contain etcd's server. The linker cannot drop the server's code if the package is imported.
//
// An embedded etcd listens on no address: the process calls it directly, and it has no peers. Its
// data directory is an ordinary one, which etcd's own tools can open.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"

	"keelson.dev/apiserver/store/kv/etcd"
)

// Limits for one transaction. One transaction must be able to bind a gang (pods that are scheduled
// together) of 8,192 pods, with 8 KiB for each pod.
const (
	maxTxnOps   = 8192
	maxTxnBytes = 64 << 20
)

// Start starts an embedded etcd and returns a store on it once it is ready. Closing the store stops
// etcd.
func Start(ctx context.Context, e etcd.Embedded) (*etcd.Store, error) {
	if err := os.MkdirAll(e.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	server, err := embed.StartEtcd(Config(e))
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
	client := v3client.New(server.Server)
	formatting := keepReadable(e, client, func() bool { return server.Server.ClusterVersion() != nil })
	return etcd.NewLocal(etcd.Local{
		Client: client, Transactions: adapter.KvServerToKvClient(v3rpc.NewQuotaKVServer(server.Server)),
		LeaseReuse: e.LeaseReuse, MaxRequest: embed.DefaultMaxRequestBytes, Clock: e.Clock,
		// A single member has applied every acknowledged write, so a read of its local revision is
		// linearizable without a round of consensus.
		Revision:   func() int64 { return server.Server.KV().Rev() },
		Size:       func() int64 { return server.Server.Backend().Size() },
		Defragment: server.Server.Defragment,
		Close: func() error {
			formatting()
			err := client.Close()
			server.Close()
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		},
	}), nil
}

// Config returns etcd's configuration: one member, no listeners.
func Config(e etcd.Embedded) *embed.Config {
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
		cfg.QuotaBackendBytes = etcd.DefaultQuota
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
	// Allow one transaction to bind all pods of a gang. MaxRequest keeps etcd's default limit for a
	// single object.
	cfg.MaxTxnOps, cfg.MaxRequestBytes = maxTxnOps, maxTxnBytes
	cfg.UnsafeNoFsync = e.UnsafeNoFsync
	cfg.WatchProgressNotifyInterval = 10 * time.Second
	cfg.EnableGRPCGateway = false
	cfg.Metrics = "basic"
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcd.NewLogger(e.Log.Handler()))
	return cfg
}
