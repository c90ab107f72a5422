// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/health"
)

// etcdTimeout is how long the store may take to answer a health check.
const etcdTimeout = 2 * time.Second

// checks are the health checks of each path, in order.
func (a *assembly) checks() map[string][]health.Check {
	etcd := health.Check{Name: "etcd", Run: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
		defer cancel()
		_, err := a.kv.Revision(ctx)
		return err
	}}
	log := health.Check{Name: "log", Run: func(context.Context) error { return nil }}
	live := []health.Check{health.Ping(), log, etcd}
	ready := []health.Check{
		health.Ping(), log, etcd,
		{Name: "etcd-readiness", Run: etcd.Run},
		a.started.Check(),
	}
	for _, h := range a.hooks {
		live, ready = append(live, h.gate.Check()), append(ready, h.gate.Check())
	}
	ready = append(ready,
		health.Check{Name: "autoregister-completion", Run: func(context.Context) error { return a.aggregator.Registered() }},
		health.Check{Name: "poststarthook/storage-readiness", Run: func(context.Context) error { return a.stores.backend.Ready() }},
		health.Check{Name: "authorization-sync", Run: func(context.Context) error { return a.authorizationSynced() }},
		a.server.shutdown.Check(),
	)
	// A restart would not bring a key server back: livez does not ask it.
	keys := a.server.keyServers
	return map[string][]health.Check{"/healthz": slices.Concat(live, keys), "/livez": live, "/readyz": slices.Concat(ready, keys)}
}

func (a *assembly) authorizationSynced() error {
	for _, synced := range a.synced {
		if !synced() {
			return fmt.Errorf("roles, bindings or nodes not loaded yet")
		}
	}
	return nil
}

// hostAddress is the machine's first global unicast address, or loopback.
func hostAddress() net.IP {
	addresses, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
				return n.IP
			}
		}
	}
	return net.IPv4(127, 0, 0, 1)
}

func newRand() *rand.Rand { return clock.NewRand() }
