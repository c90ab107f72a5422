// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"keelson.dev/api/clock"
)

const (
	// leaseReusePart limits for how long a lease accepts further keys: for at most
	// TTL/leaseReusePart, as in Kubernetes.
	leaseReusePart = 20
	// leaseKeys bounds the number of keys of a lease, which are deleted at one revision.
	leaseKeys = 1000
)

// leases attaches keys that expire at about the same time to one etcd lease, because leases are
// expensive in etcd, and there are many events. It is safe for concurrent use.
type leases struct {
	client *clientv3.Client
	clock  clock.Clock
	leader *leader
	reuse  int64 // seconds for which a lease accepts further keys

	mu    sync.Mutex
	byTTL map[int64]*lease // the latest lease for each TTL; few different TTLs are in use
}

type lease struct {
	id   clientv3.LeaseID
	end  time.Time
	keys int
}

func newLeases(client *clientv3.Client, reuse int64, clock clock.Clock) *leases {
	return &leases{client: client, clock: clock, reuse: max(0, reuse), byTTL: map[int64]*lease{}}
}

// get returns an etcd lease that expires in ttl seconds or a little later.
func (l *leases) get(ctx context.Context, ttl int64) (clientv3.LeaseID, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if cur := l.byTTL[ttl]; cur != nil && cur.keys < leaseKeys && !now.Add(seconds(ttl)).After(cur.end) {
		cur.keys++
		return cur.id, nil
	}
	granted := ttl + min(l.reuse, ttl/leaseReusePart)
	resp, err := l.grant(ctx, granted)
	if err != nil {
		return 0, err
	}
	l.byTTL[ttl] = &lease{id: resp.ID, end: now.Add(seconds(granted)), keys: 1}
	return resp.ID, nil
}

// grant makes a lease. If the request is lost, it is repeated: a further lease without keys does no harm.
func (l *leases) grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	for {
		limited, stop := l.leader.follow(ctx)
		resp, err := l.client.Grant(limited, ttl)
		err = lost(limited, err)
		stop()
		if !errors.Is(err, errLost) {
			return resp, err
		}
	}
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
