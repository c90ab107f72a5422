// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package healthcheck serves the health checks of load balancers: whether this node's proxy works,
// and how many endpoints of a service are on the node. Bodies and status codes are the same as
// kube-proxy's, because the load balancers of cloud providers rely on them.
package healthcheck

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// toBeDeleted is the taint of a node that the cluster autoscaler is about to remove.
const toBeDeleted = "ToBeDeletedByClusterAutoscaler"

// Proxy is the health of the node's proxy. It is safe for concurrent use.
type Proxy struct {
	clock   clock.PassiveClock
	timeout time.Duration
	count   func(path string, code int)

	mu       sync.Mutex
	updated  map[corev1.IPFamily]time.Time // guarded by mu
	queued   map[corev1.IPFamily]time.Time // guarded by mu; time of the oldest pending change
	eligible bool                          // guarded by mu
}

// NewProxy returns a Proxy that reports unhealthy while a change has waited for longer than
// timeout. It calls count for each response.
func NewProxy(c clock.PassiveClock, timeout time.Duration, count func(path string, code int)) *Proxy {
	return &Proxy{clock: c, timeout: timeout, count: count, updated: map[corev1.IPFamily]time.Time{},
		queued: map[corev1.IPFamily]time.Time{}}
}

// Queued records that a change for an IP family waits to be applied.
func (p *Proxy) Queued(f corev1.IPFamily) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.queued[f]; !ok {
		p.queued[f] = p.clock.Now()
	}
}

// Updated records that all changes for an IP family have been applied.
func (p *Proxy) Updated(f corev1.IPFamily) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.queued, f)
	p.updated[f] = p.clock.Now()
}

// Node records the Node object, or nil if it does not exist. If the node is about to be removed,
// Healthz fails, so that load balancers send no new traffic to it.
func (p *Proxy) Node(n *corev1.Node) {
	eligible := n != nil && n.DeletionTimestamp.IsZero()
	if eligible {
		for _, t := range n.Spec.Taints {
			eligible = eligible && t.Key != toBeDeleted
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.eligible = eligible
}

type familyHealth struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

type report struct {
	LastUpdated  time.Time                        `json:"lastUpdated"`
	CurrentTime  time.Time                        `json:"currentTime"`
	NodeEligible *bool                            `json:"nodeEligible,omitempty"`
	Healthy      bool                             `json:"healthy"`
	Status       map[corev1.IPFamily]familyHealth `json:"status,omitempty"`
}

func (p *Proxy) report() (report, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := report{CurrentTime: p.clock.Now(), Healthy: true, Status: map[corev1.IPFamily]familyHealth{}}
	for f, at := range p.updated {
		queued, waiting := p.queued[f]
		ok := !waiting || r.CurrentTime.Sub(queued) < p.timeout
		r.Status[f] = familyHealth{at, ok}
		r.Healthy = r.Healthy && ok
		if at.After(r.LastUpdated) {
			r.LastUpdated = at
		}
	}
	return r, p.eligible
}

// Healthy reports whether no change has waited for longer than the timeout. An IP family counts as
// healthy until its first changes have been applied.
func (p *Proxy) Healthy() bool {
	r, _ := p.report()
	return r.Healthy
}

// Synced reports whether the nftables tables contain all changes so far: every IP family in use has
// been written, and no change waits to be applied.
func (p *Proxy) Synced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.updated) > 0 && len(p.queued) == 0
}

// Healthz serves /healthz. Unlike Livez, it also fails if the node is about to be removed.
func (p *Proxy) Healthz(w http.ResponseWriter, _ *http.Request) {
	r, eligible := p.report()
	r.NodeEligible = &eligible
	p.answer(w, "healthz", r, r.Healthy && eligible)
}

// Livez serves /livez, which fails only if the proxy is unhealthy.
func (p *Proxy) Livez(w http.ResponseWriter, _ *http.Request) {
	r, _ := p.report()
	p.answer(w, "livez", r, r.Healthy)
}

func (p *Proxy) answer(w http.ResponseWriter, path string, r report, ok bool) {
	code := http.StatusOK
	if !ok {
		code = http.StatusServiceUnavailable
	} else {
		r.LastUpdated = r.CurrentTime // nothing is pending, so the tables are up to date now
	}
	p.count(path, code)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	body, err := json.Marshal(r)
	if err != nil {
		return // cannot happen, because times and booleans can always be encoded
	}
	_, _ = w.Write(body) // an error means that the client has disconnected
}
