// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"crypto/tls"
	"log/slog"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"keelson.dev/api/clock"
)

// Kubernetes' figures for its etcd client.
const (
	dialTimeout      = 20 * time.Second
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
)

// External configures a client of an etcd cluster. The files are those of
// --etcd-cafile, --etcd-certfile and --etcd-keyfile.
type External struct {
	Endpoints                 []string
	CAFile, CertFile, KeyFile string
	// Options are how to dial, beside.
	Options []grpc.DialOption
	// LeaseReuse is for how many seconds a lease takes in further keys of the same life.
	LeaseReuse int64
	Clock      clock.Clock
	Log        *slog.Logger
}

// Dial returns a store on an etcd cluster. It does not wait for the cluster:
// calls do, and fail with their context.
func Dial(e External) (*Store, error) {
	tlsConfig, err := e.tls()
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            e.Endpoints,
		TLS:                  tlsConfig,
		DialOptions:          e.Options,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepaliveTime,
		DialKeepAliveTimeout: keepaliveTimeout,
		MaxCallRecvMsgSize:   1<<31 - 1, // a page of large objects has no other bound
		Logger:               zap.New(&logCore{handler: e.Log.Handler()}),
	})
	if err != nil {
		return nil, err
	}
	s := newStore(client, e.LeaseReuse, e.Clock)
	s.revision, s.size = s.readRevision, s.readSize
	s.close = client.Close
	return s, nil
}

func (e External) tls() (*tls.Config, error) {
	if e.CAFile == "" && e.CertFile == "" && e.KeyFile == "" {
		return nil, nil
	}
	info := transport.TLSInfo{TrustedCAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile}
	cfg, err := info.ClientConfig()
	if err != nil {
		return nil, err
	}
	return cfg, nil
}
