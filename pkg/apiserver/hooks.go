// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/apiserver/bootstrap"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/services"
	"keelson.dev/keelson/pkg/features"
	"keelson.dev/keelson/pkg/health"
)

// hook is a start step that must succeed once before the server is ready. Its name is also the name
// of its health check.
type hook struct {
	name string
	// group is the API group that the hook needs, or empty if it needs none. The hook is omitted if
	// the group is not served.
	group string
	run   func(ctx context.Context) error
	// The function after runs once the function run has succeeded, until the server stops. It may
	// be nil.
	after func(ctx context.Context)

	gate *health.Gate
}

// buildHooks lists the start hooks. The first one runs alone, because the others need its
// namespaces.
func (a *assembly) buildHooks() error {
	client := a.self.client
	kubernetes := bootstrap.Kubernetes{
		Config: a.cfg.Endpoints, Client: client, Members: a.members, Address: a.advertised(), Port: a.port(),
		Ranges: a.cfg.ServiceClusterIPRanges, Renew: serverRenew, TTL: serverLease,
		Clock: a.server.deps.Clock, Log: a.server.log,
	}
	a.ranges = &bootstrap.ServiceCIDR{
		Client: client, Ranges: a.cfg.ServiceClusterIPRanges, Clock: a.server.deps.Clock, Log: a.server.log,
	}
	var err error
	a.repair, err = a.services.NewRepair(services.RepairDeps{Client: client, Informers: a.self.informers,
		Clock: a.server.deps.Clock})
	if err != nil {
		return fmt.Errorf("repair of cluster IPs: %w", err)
	}
	identity, err := bootstrap.NewIdentity(client, a.address(), a.server.deps.Clock, a.server.log)
	if err != nil {
		return err
	}
	a.hooks = []*hook{
		{name: "start-system-namespaces-controller",
			run:   func(ctx context.Context) error { return bootstrap.Namespaces(ctx, client) },
			after: a.keep(time.Minute, func(ctx context.Context) error { return bootstrap.Namespaces(ctx, client) })},
		{name: "crd-informer-synced", run: a.custom.WaitSynced},
		{name: "rbac/bootstrap-roles", group: rbacv1.GroupName, run: a.bootstrapRoles, after: a.awaitAuthorization},
		{name: "scheduling/bootstrap-system-priority-classes", group: schedulingv1.GroupName,
			run: func(ctx context.Context) error { return bootstrap.PriorityClasses(ctx, client) }},
		{name: "start-kubernetes-service-cidr-controller",
			run: a.ranges.Sync, after: a.keep(serviceCIDRInterval, a.ranges.Sync)},
		{name: "bootstrap-controller", run: func(ctx context.Context) error {
			if err := a.awaitRanges(ctx); err != nil {
				return err
			}
			kubernetes.Start(ctx)
			return nil
		}, after: kubernetes.Run},
		{name: "start-cluster-authentication-info-controller", run: a.publishAuthentication,
			after: a.keepAuthentication},
		a.identityHook(identity),
		{name: "start-legacy-token-tracking-controller",
			run: func(ctx context.Context) error { return bootstrap.TokenTracking(ctx, client, a.server.deps.Clock) },
			after: a.keep(time.Minute,
				func(ctx context.Context) error { return bootstrap.TokenTracking(ctx, client, a.server.deps.Clock) })},
		{name: "start-service-ip-repair-controllers",
			run: func(ctx context.Context) error {
				if err := a.awaitRanges(ctx); err != nil {
					return err
				}
				return a.repair.First(ctx)
			}, after: a.repair.Run},
	}
	// Create the flow control configuration even if this server does not use it, because another
	// server may use it.
	produce := func(ctx context.Context) error {
		return bootstrap.FlowControl(ctx, client, a.self.informers.Flowcontrol().V1())
	}
	a.hooks = append(a.hooks, &hook{name: "priority-and-fairness-config-producer", group: flowcontrolv1.GroupName,
		run: produce, after: a.keep(time.Minute, produce)})
	if a.cfg.Features.Enabled(features.StorageVersionAPI) {
		publish := bootstrap.NewStorageVersions(identity, a.rows).Publish
		a.hooks = append(a.hooks, &hook{name: "built-in-resources-storage-version-updater",
			run: publish, after: a.keep(10*time.Minute, publish)})
	}
	served := a.server.groups
	a.hooks = slices.DeleteFunc(a.hooks, func(h *hook) bool { return h.group != "" && !slices.Contains(served, h.group) })
	for _, h := range a.hooks {
		h.gate = health.NewGate(h.name, "not finished")
	}
	a.leaveCluster = kubernetes.Leave
	return nil
}

// identityHook returns the hook that maintains the lease of this server. If leases are not served,
// the hook does nothing.
func (a *assembly) identityHook(identity *bootstrap.Identity) *hook {
	h := &hook{name: "start-kube-apiserver-identity-lease-controller", run: identity.Renew, after: identity.Run}
	if !slices.ContainsFunc(a.rows, func(r *resource.Row) bool {
		return r.Group == coordinationv1.GroupName &&
			r.Resource == "leases"
	}) {
		h.run, h.after = func(context.Context) error { return nil }, nil
	}
	return h
}

func (a *assembly) runHooks(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for i, h := range a.hooks {
		if i == 0 {
			a.succeed(ctx, h)
			wg.Go(func() { h.keep(ctx) })
			continue
		}
		wg.Go(func() {
			a.succeed(ctx, h)
			h.keep(ctx)
		})
	}
}

func (h *hook) keep(ctx context.Context) {
	if h.after != nil && ctx.Err() == nil {
		h.after(ctx)
	}
}

// succeed runs h again and again until it succeeds or ctx is done.
func (a *assembly) succeed(ctx context.Context, h *hook) {
	for ctx.Err() == nil {
		err := h.run(ctx)
		if err == nil {
			h.gate.Open()
			return
		}
		a.server.log.Info("Task at the start of the server failed, retrying", "hook", h.name, "err", err)
		select {
		case <-ctx.Done():
		case <-a.server.deps.Clock.After(hookRetry):
		}
	}
}

// keep returns a function that calls fn every interval until its context is done.
func (a *assembly) keep(every time.Duration, fn func(context.Context) error) func(context.Context) {
	return func(ctx context.Context) {
		ticker := a.server.deps.Clock.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
				if err := fn(ctx); err != nil && ctx.Err() == nil {
					a.server.log.Info("Failed to maintain bootstrap objects", "err", err)
				}
			}
		}
	}
}

// bootstrapRoles creates the default policy and waits until the authorizer has seen it, so that a
// ready server grants the rights of the policy.
func (a *assembly) bootstrapRoles(ctx context.Context) error {
	if err := a.policy.Reconcile(ctx, a.self.client); err != nil || !a.server.authorizers.Has(config.ModeRBAC) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, policySeen)
	defer cancel()
	return a.poll(ctx, func(context.Context) bool { return a.policy.KnownTo(a.rules) })
}

// poll waits until the function done returns true. The interval starts at announceInterval and grows
// by a quarter each time, up to 1 s, so that poll waits at most about a quarter longer than needed.
func (a *assembly) poll(ctx context.Context, done func(context.Context) bool) error {
	for wait := announceInterval; !done(ctx); wait = min(wait+wait/4, time.Second) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.server.deps.Clock.After(wait):
		}
	}
	return nil
}

// awaitRanges waits until the server's caches are loaded and have the default ServiceCIDR, because
// Services get addresses only from the ranges in the cache.
func (a *assembly) awaitRanges(ctx context.Context) error {
	lister := a.self.informers.Networking().V1().ServiceCIDRs().Lister()
	return a.poll(ctx, func(ctx context.Context) bool {
		_, err := lister.Get(bootstrap.DefaultServiceCIDR)
		return err == nil && a.started.Check().Run(ctx) == nil
	})
}

// announce closes Server.Ready once every check of readyz passes.
func (a *assembly) announce(ctx context.Context) {
	checks := a.checks()["/readyz"]
	err := a.poll(ctx, func(ctx context.Context) bool {
		ok := true
		for _, c := range checks {
			ok = ok && c.Run(ctx) == nil
		}
		return ok
	})
	if err != nil {
		return
	}
	close(a.server.ready)
	a.server.log.Info("Ready")
}

// leave removes this server from the endpoints of the kubernetes service.
func (a *assembly) leave(ctx context.Context) {
	if err := a.leaveCluster(ctx); err != nil {
		a.server.log.Info("Failed to remove server from the kubernetes service", "err", err)
	}
}

func (a *assembly) port() int {
	if addr := a.server.address.Load(); addr != nil {
		return addr.Port
	}
	return a.cfg.SecurePort
}
