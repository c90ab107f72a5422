// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

const (
	// repairInterval is how often allocations are compared with services.
	repairInterval = 3 * time.Minute
	// leakGrace is the minimum age at which an address without a service is released. A service for
	// a younger address may still be in the process of being created.
	leakGrace = time.Minute
	// leakRounds is the number of consecutive rounds without a service after which a port is
	// released.
	leakRounds = 3
)

// Lists are the registries that the repair loop lists, without requests to the server.
type Lists struct{ Services, Addresses *registry.Registry }

// repair is the state of the loop that repairs the allocations of cluster IPs and node ports.
type repair struct {
	a      *Allocator
	lists  Lists
	client kubernetes.Interface
	now    func() time.Time
	leaked map[int]int // consecutive rounds without a service, by port
}

// Repair runs one round of RunRepair. It allocates addresses and ports that services have and that
// are not allocated yet. Unlike RunRepair, it frees nothing.
func (a *Allocator) Repair(ctx context.Context, lists Lists, client kubernetes.Interface) error {
	r := &repair{a: a, lists: lists, client: client, leaked: map[int]int{}}
	return r.round(ctx)
}

// RunRepair repairs the allocations of cluster IPs and node ports at intervals until ctx is done.
func (a *Allocator) RunRepair(ctx context.Context, lists Lists, client kubernetes.Interface, clk clock.Clock) {
	r := &repair{a: a, lists: lists, client: client, now: clk.Now, leaked: map[int]int{}}
	ticker := clk.NewTicker(repairInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if err := r.round(ctx); err != nil && ctx.Err() == nil {
				a.Log.Info("Failed to repair the records of cluster IPs and node ports", "err", err)
			}
		}
	}
}

func (r *repair) round(ctx context.Context) error {
	all, err := list[*corev1.Service](ctx, r.lists.Services, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("services: %w", err)
	}
	return errors.Join(r.ports(ctx, all), r.addresses(ctx, all))
}

// list returns the current objects of a registry, in all namespaces.
func list[T resource.Object](ctx context.Context, from *registry.Registry, options metav1.ListOptions) ([]T, error) {
	page, err := from.List(ctx, metav1.NamespaceAll, options)
	if err != nil {
		return nil, err
	}
	out := make([]T, 0, len(page.Records))
	for _, record := range page.Records {
		obj, err := record.Object()
		if err != nil {
			return nil, err
		}
		o, ok := obj.(T)
		if !ok {
			return nil, fmt.Errorf("unexpected %T", obj)
		}
		out = append(out, o)
	}
	return out, nil
}

// ports marks the node ports of all services as allocated. It frees ports that no service had in
// the last leakRounds rounds.
func (r *repair) ports(ctx context.Context, all []*corev1.Service) error {
	used := map[int]bool{}
	for _, svc := range all {
		for _, p := range portsOf(svc) {
			used[p] = true
		}
	}
	pool := r.a.Ports.pool
	var leaked map[int]int
	err := r.a.Ports.change(ctx, false, func(b *bitmap) error {
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

// addresses creates missing IPAddress objects, and deletes those that belong to no service.
func (r *repair) addresses(ctx context.Context, all []*corev1.Service) error {
	objects, err := list[*networkingv1.IPAddress](ctx, r.lists.Addresses,
		metav1.ListOptions{LabelSelector: managerLabel + "=" + manager})
	if err != nil {
		return fmt.Errorf("addresses: %w", err)
	}
	byName := map[string]*networkingv1.IPAddress{}
	for _, o := range objects {
		byName[o.Name] = o
	}
	held := map[string]bool{}
	var errs []error
	for _, svc := range all {
		for _, ip := range clusterIPs(svc) {
			held[ip] = true
			if byName[ip] != nil {
				continue
			}
			family, _ := familyOf(ip)
			addr, err := netip.ParseAddr(ip)
			if err == nil {
				err = r.a.IPs.create(ctx, svc, family, addr)
			}
			if err != nil && !errors.Is(err, errAllocated) {
				errs = append(errs, fmt.Errorf("address %s: %w", ip, err))
			}
		}
	}
	for name, o := range byName {
		if held[name] || r.now == nil || r.now().Sub(o.CreationTimestamp.Time) < leakGrace {
			continue
		}
		err := r.client.NetworkingV1().IPAddresses().Delete(ctx, name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("address %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
