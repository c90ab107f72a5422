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
	"go.uber.org/zap"

	"keelson.dev/api/clock"
)

// DefaultQuota is the size at which an embedded etcd refuses further writes.
const DefaultQuota = 8 << 30

// Bounds of one transaction: as many pods as a gang may have, of 8 KB each.
const (
	maxTxnOps   = 8192
	maxTxnBytes = 64 << 20
)

// Embedded configures an etcd in this process.
type Embedded struct {
	// Dir is the data directory. One process at a time may use it.
	Dir string
	// QuotaBytes bounds the database; 0 is DefaultQuota.
	QuotaBytes int64
	// UnsafeNoFsync trades durability for speed, for tests.
	UnsafeNoFsync bool
	// LeaseReuse is for how many seconds a lease takes in further keys of the same life.
	LeaseReuse int64
	Clock      clock.Clock
	Log        *slog.Logger
}

// Start runs an embedded etcd and returns a store on it once it serves.
// Closing the store stops it.
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
	s := newStore(v3client.New(server.Server), e.LeaseReuse, e.Clock)
	s.maxRequest = embed.DefaultMaxRequestBytes
	// With a single member every acknowledged write has been applied here, so
	// what this process sees is the truth and needs no round of consensus.
	s.revision = func(context.Context) (int64, error) { return server.Server.KV().Rev(), nil }
	s.size = func(context.Context) (int64, error) { return server.Server.Backend().Size(), nil }
	s.close = func() error {
		err := s.client.Close()
		server.Close()
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	return s, nil
}

// config is etcd's own configuration: one member, no listeners.
func (e Embedded) config() *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "keelson"
	cfg.Dir = e.Dir
	cfg.ListenPeerUrls, cfg.ListenClientUrls = nil, nil
	// Never dialled; a member must have a URL, and this one says what it is.
	self := url.URL{Scheme: "http", Host: "localhost:0"}
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{self}, []url.URL{self}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.QuotaBackendBytes = e.QuotaBytes
	if e.QuotaBytes == 0 {
		cfg.QuotaBackendBytes = DefaultQuota
	}
	// A lone member elects itself: a short election only means an early start. An
	// even shorter tick would cost more in idling than it gains.
	cfg.TickMs, cfg.ElectionMs = 30, 150
	// How much of the log stays in memory for members that lag behind: there are none.
	cfg.SnapshotCatchUpEntries = 100
	// A start reads the whole log, and goes through what came after the snapshot;
	// of more than 5000 entries it complains until it is done.
	cfg.SnapshotCount, cfg.MaxWalFiles = 4000, 2
	// What is acknowledged is in the log; into the database it goes by the batch,
	// and everything that is to be applied waits for that.
	cfg.BackendBatchInterval = 500 * time.Millisecond
	// One transaction binds all pods of a gang. What a single object may have
	// stays what it is in etcd: see maxRequest.
	cfg.MaxTxnOps, cfg.MaxRequestBytes = maxTxnOps, maxTxnBytes
	cfg.UnsafeNoFsync = e.UnsafeNoFsync
	cfg.WatchProgressNotifyInterval = 10 * time.Second
	cfg.EnableGRPCGateway = false
	cfg.Metrics = "basic"
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(&logCore{handler: e.Log.Handler()}))
	return cfg
}
