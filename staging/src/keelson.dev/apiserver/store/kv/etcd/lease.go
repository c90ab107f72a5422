// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"keelson.dev/api/clock"
)

const (
	// leaseReusePart is the part of its time for which a lease takes in further
	// keys at most: Kubernetes' figure.
	leaseReusePart = 20
	// leaseKeys bounds how many keys go at one revision when a lease ends.
	leaseKeys = 1000
)

// leases groups keys with about the same end under one etcd lease, because
// leases are dear in etcd, and events many.
type leases struct {
	client *clientv3.Client
	clock  clock.Clock
	reuse  int64 // seconds for which a lease takes in further keys

	mu    sync.Mutex
	byTTL map[int64]*lease // latest lease of each TTL asked for; TTLs are few
}

type lease struct {
	id   clientv3.LeaseID
	end  time.Time
	keys int
}

func newLeases(client *clientv3.Client, reuse int64, clock clock.Clock) *leases {
	return &leases{client: client, clock: clock, reuse: max(0, reuse), byTTL: map[int64]*lease{}}
}

// get returns a lease that ends in ttl seconds or a little later.
func (l *leases) get(ctx context.Context, ttl int64) (clientv3.LeaseID, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if cur := l.byTTL[ttl]; cur != nil && cur.keys < leaseKeys && !now.Add(seconds(ttl)).After(cur.end) {
		cur.keys++
		return cur.id, nil
	}
	granted := ttl + min(l.reuse, ttl/leaseReusePart)
	resp, err := l.client.Grant(ctx, granted)
	if err != nil {
		return 0, err
	}
	l.byTTL[ttl] = &lease{id: resp.ID, end: now.Add(seconds(granted)), keys: 1}
	return resp.ID, nil
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
