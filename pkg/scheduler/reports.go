// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// reports are what is to be told of pods that got no node, and to be done for
// them. They never hold up decisions: of a pod only the latest waits, so that
// there are at most as many as pods in the queue.
type reports struct {
	mu      sync.Mutex
	waiting map[types.UID]func()
	order   []types.UID
	wake    chan struct{} // holds a token when some wait
}

func newReports() *reports {
	return &reports{waiting: map[types.UID]func(){}, wake: make(chan struct{}, 1)}
}

func (r *reports) add(uid types.UID, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, waits := r.waiting[uid]; !waits {
		r.order = append(r.order, uid)
	}
	r.waiting[uid] = f
	r.signal()
}

func (r *reports) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run carries reports out until ctx ends. Several may run.
func (r *reports) run(ctx context.Context) {
	for {
		f := r.next()
		if f != nil {
			f()
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
	}
}

func (r *reports) next() func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.order) == 0 {
		return nil
	}
	uid := r.order[0]
	if r.order = r.order[1:]; len(r.order) > 0 {
		r.signal() // another may help
	}
	f := r.waiting[uid]
	delete(r.waiting, uid)
	return f
}

// instance is what events say a scheduler is.
func instance(identity string) string {
	if identity != "" {
		return identity
	}
	host, err := os.Hostname()
	if err != nil {
		return "unknown" // events are written all the same
	}
	return host
}
