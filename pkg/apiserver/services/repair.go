// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/follow"
)

// RepairController is the component that repairs IPAddresses. It is the source of its events.
const RepairController = "ipallocator-repair-controller"

const (
	// repairInterval is how often all allocations are compared with services.
	repairInterval = 3 * time.Minute
	// settleTime is the time between a change and the check of the changed object. By then, the cache
	// usually has both the service and its IPAddress.
	settleTime = time.Second
	// leakRounds is the number of consecutive rounds without a service after which a port is
	// released.
	leakRounds = 3
)

// Repair compares services with IPAddresses and with the bitmap of node ports, and repairs
// differences. It compares all of them at the start and every repairInterval. It also checks each
// service and each IPAddress that is new or changes. As in Kubernetes, every server does this.
//
// A check reads the caches of informers. Only if it finds a difference, Repair reads the current
// objects, checks these, and repairs them. If several servers do this at the same time, the first one
// succeeds, and the others find no difference any more.
type Repair struct {
	RepairDeps
	// Events records differences. It must be set before First is called.
	Events events.EventRecorder

	a        *Allocator
	services corelisters.ServiceLister
	ips      networkinglisters.IPAddressLister
	ranges   networkinglisters.ServiceCIDRLister
	watching atomic.Bool            // whether changes are noted
	changes  *follow.Changes[names] // objects to check
	failed   names                  // objects to check again after an error
	leaked   map[int]int            // consecutive rounds without a service, by port
}

// names is a set of names of services and IPAddresses. IPAddresses have no namespace.
type names map[types.NamespacedName]struct{}

// RepairDeps are the arguments of NewRepair.
type RepairDeps struct {
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	Clock     clock.Clock
}

// NewRepair returns a Repair that follows the informers. It must be called before these start.
func (a *Allocator) NewRepair(d RepairDeps) (*Repair, error) {
	services, networking := d.Informers.Core().V1().Services(), d.Informers.Networking().V1()
	r := &Repair{
		RepairDeps: d, a: a, services: services.Lister(), ips: networking.IPAddresses().Lister(),
		ranges: networking.ServiceCIDRs().Lister(), leaked: map[int]int{}, failed: names{},
		changes: follow.NewChanges(func() names { return names{} }),
	}
	_, err := services.Informer().AddEventHandler(onChange(func(svc *corev1.Service) {
		if r.watching.Load() {
			r.noteService(svc, r.note)
		}
	}))
	_, err2 := networking.IPAddresses().Informer().AddEventHandler(onChange(func(o *networkingv1.IPAddress) {
		if r.watching.Load() {
			r.noteAddress(o, r.note)
		}
	}))
	return r, errors.Join(err, err2)
}

// onChange returns an event handler that calls check with each object that is new or has changed.
func onChange[T any](check func(T)) cache.ResourceEventHandlerFuncs {
	changed := func(obj any) {
		if o, ok := obj.(T); ok {
			check(o)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }}
}

// note adds an object to the objects that the next round checks.
func (r *Repair) note(key types.NamespacedName) {
	r.changes.Note(func(n *names) { (*n)[key] = struct{}{} })
}

// First repairs all allocations. The informers must have synced before. Changes are noted from now on,
// for Run.
func (r *Repair) First(ctx context.Context) error {
	r.watching.Store(true)
	var errs []error
	r.noteAll(func(key types.NamespacedName) { errs = append(errs, r.sync(ctx, key)) })
	return errors.Join(append(errs, r.ports(ctx))...)
}

// Run repairs allocations until ctx is done.
func (r *Repair) Run(ctx context.Context) {
	follow.Loop{
		Clock: r.Clock, Wake: r.changes.Signal, Settle: func(time.Duration) time.Duration { return settleTime },
		FirstRetry: settleTime, LastRetry: repairInterval, Period: repairInterval,
		Check: func() {
			r.noteAll(r.note)
			if err := r.ports(ctx); err != nil && ctx.Err() == nil {
				r.a.Log.Info("Failed to repair the allocations of node ports", "err", err)
			}
		},
	}.Run(ctx, r.round)
}

// round checks and repairs the objects that were noted, and those of the last round that failed.
func (r *Repair) round(ctx context.Context) bool {
	due := r.changes.Take()
	maps.Copy(due, r.failed)
	clear(r.failed)
	for key := range due {
		if err := r.sync(ctx, key); err != nil {
			r.failed[key] = struct{}{}
			if ctx.Err() == nil {
				r.a.Log.Info("Failed to repair the allocations of cluster IPs, retrying", "key", key, "err", err)
			}
		}
	}
	return len(r.failed) == 0
}

// noteAll calls note for each service and IPAddress that needs a sync.
func (r *Repair) noteAll(note func(types.NamespacedName)) {
	services, err := r.services.List(labels.Everything())
	if err != nil {
		return // cannot happen: List of a cache returns no error
	}
	for _, svc := range services {
		r.noteService(svc, note)
	}
	addresses, err := r.ips.List(labels.Everything())
	if err != nil {
		return // cannot happen
	}
	for _, o := range addresses {
		r.noteAddress(o, note)
	}
}

// ports marks the node ports of all services as allocated. It frees ports that no service had in
// the last leakRounds rounds.
func (r *Repair) ports(ctx context.Context) error {
	all, err := r.services.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("services: %w", err)
	}
	used := map[int]bool{}
	for _, svc := range all {
		for _, p := range portsOf(svc) {
			used[p] = true
		}
	}
	pool := r.a.Ports.pool
	var leaked map[int]int
	err = r.a.Ports.change(ctx, false, func(b *bitmap) error {
		leaked = map[int]int{}
		for port := range used {
			if pool.Contains(port) {
				b.set(port-pool.First, true)
			}
		}
		for i := range b.BitLen() {
			port := pool.First + i
			if !b.has(i) || used[port] {
				continue
			}
			if leaked[port] = r.leaked[port] + 1; leaked[port] >= leakRounds {
				b.set(i, false)
				delete(leaked, port)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("node ports: %w", err)
	}
	r.leaked = leaked
	return nil
}
