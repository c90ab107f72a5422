// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"crypto/tls"
	"log/slog"
	"math"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"keelson.dev/api/clock"
)

// These are the settings of Kubernetes' etcd client.
const (
	dialTimeout      = 20 * time.Second
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
)

// Limits for one message in bytes. Requests have the default limit of etcd's client. Responses have
// none, because pages of large objects may be larger than gRPC's default.
const (
	maxCallSend    = 2 << 20
	maxCallReceive = math.MaxInt32
)

// External configures a client of an etcd cluster. The files are in PEM. If none is set, the client
// does not use TLS.
type External struct {
	Endpoints                 []string
	CAFile, CertFile, KeyFile string
	// Options are further gRPC options.
	Options []grpc.DialOption
	// LeaseReuse is the number of seconds for which a lease accepts further keys with the same TTL.
	LeaseReuse int64
	Clock      clock.Clock
	Log        *slog.Logger
}

// Dial returns a store on an etcd cluster. It does not wait for a connection; calls wait for it
// until their context ends. It returns an error if a file cannot be read.
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
		MaxCallSendMsgSize:   maxCallSend,
		MaxCallRecvMsgSize:   maxCallReceive,
		Logger:               NewLogger(e.Log.Handler()),
	})
	if err != nil {
		return nil, err
	}
	s := newStore(client, clientv3.RetryKVClient(client), e.LeaseReuse, e.Clock)
	s.leader = &leader{client: client, clock: e.Clock}
	s.leases.leader = s.leader
	s.callOptions = []grpc.CallOption{grpc.WaitForReady(true), grpc.MaxCallSendMsgSize(maxCallSend),
		grpc.MaxCallRecvMsgSize(maxCallReceive)}
	s.revision, s.size = s.readRevision, s.readSize
	s.close, s.defragment = client.Close, s.requestDefragmentation
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
