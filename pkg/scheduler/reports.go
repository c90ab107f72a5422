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
// them. They never hold up decisions: of a pod only the latest waits, beside
// those with evictions, which must not be left out.
type reports struct {
	mu      sync.Mutex
	waiting map[types.UID]report
	order   []types.UID
	wake    chan struct{} // holds a token when some wait
}

// report is what is to be done for one pod.
type report struct {
	must []func() // before last
	last func()
}

func newReports() *reports {
	return &reports{waiting: map[types.UID]report{}, wake: make(chan struct{}, 1)}
}

// add replaces what waits for a pod, as far as that may be left out.
func (r *reports) add(uid types.UID, f func()) { r.put(uid, f, false) }

// addAll adds something that must be done.
func (r *reports) addAll(uid types.UID, f func()) { r.put(uid, f, true) }

func (r *reports) put(uid types.UID, f func(), must bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, waits := r.waiting[uid]
	if !waits {
		r.order = append(r.order, uid)
	}
	if must {
		w.must, w.last = append(w.must, f), nil
	} else {
		w.last = f
	}
	r.waiting[uid] = w
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
	w := r.waiting[uid]
	delete(r.waiting, uid)
	return func() {
		for _, f := range w.must {
			f()
		}
		if w.last != nil {
			w.last()
		}
	}
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
