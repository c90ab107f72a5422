// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/health"
)

// checks returns the health checks by path, in order.
func (a *assembly) checks() map[string][]health.Check {
	etcd, prompt := a.storageChecks()
	log := health.Check{Name: "log", Run: succeed}
	// The server calls itself in memory, so there is no certificate that could expire.
	loopback := health.Check{Name: "loopback-serving-certificate", Run: succeed}
	informers := health.Check{Name: "informer-sync", Run: a.informersSynced}
	start := a.startChecks()
	// For livez and healthz, a start step that has succeeded once stays healthy, even if the storage
	// fails later.
	alive := make([]health.Check, 0, len(start))
	for _, c := range start {
		alive = append(alive, health.Once(c))
	}
	first, keys := []health.Check{health.Ping(), log, loopback}, a.server.keyServers
	return map[string][]health.Check{
		"/healthz": slices.Concat(first, etcd, keys, alive),
		// livez omits the key servers, because a restart would not repair them.
		"/livez": a.withGrace(slices.Concat(first, etcd, alive)),
		"/readyz": slices.Concat(first[:2], prompt, keys, []health.Check{informers}, start,
			[]health.Check{a.server.shutdown.Check()}),
	}
}

// storageChecks returns two lists of checks of the databases: live for livez and healthz, and ready
// for readyz.
func (a *assembly) storageChecks() (live, ready []health.Check) {
	for i, db := range a.databases.all {
		name, prompt := "etcd", "etcd-readiness"
		if i > 0 {
			name, prompt = fmt.Sprintf("etcd-override-%d", i-1), fmt.Sprintf("etcd-override-readiness-%d", i-1)
		}
		answers := health.Check{Name: name, Group: "etcd", Run: db.answers(a.cfg.Etcd.HealthTimeout)}
		live = append(live, answers)
		ready = append(ready, answers,
			health.Check{Name: prompt, Group: "etcd-readiness", Run: db.answers(a.cfg.Etcd.ReadyTimeout)})
	}
	return live, ready
}

// answers returns a check that fails if the database does not answer within timeout. As in Kubernetes,
// 0 stands for the default.
func (db *database) answers(timeout time.Duration) func(context.Context) error {
	timeout = cmp.Or(timeout, config.DefaultCheckTimeout)
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		_, err := db.kv.Revision(ctx)
		return err
	}
}

// withGrace returns checks that succeed during the grace period after the start.
func (a *assembly) withGrace(checks []health.Check) []health.Check {
	grace := a.cfg.HTTP.LivezGrace
	if grace == 0 {
		return checks
	}
	until := a.server.deps.Clock.Now().Add(grace)
	out := slices.Clone(checks)
	for i, c := range checks {
		out[i].Run = func(ctx context.Context) error {
			if a.server.deps.Clock.Now().Before(until) {
				return nil
			}
			return c.Run(ctx)
		}
	}
	return out
}

func succeed(context.Context) error { return nil }

// informersSynced returns an error until all informers of the server have synced.
func (a *assembly) informersSynced(ctx context.Context) error {
	if err := a.started.Check().Run(ctx); err != nil {
		return err
	}
	return a.authorizationSynced()
}

// startChecks returns the checks of the start steps, with the names and in the order of Kubernetes'
// server. Several names share one condition if this server does in one step what Kubernetes does in
// several steps.
func (a *assembly) startChecks() []health.Check {
	type condition = func(context.Context) error
	stored := func(context.Context) error { return a.databases.ready() }
	registered := func(context.Context) error { return a.aggregator.Registered() }
	gates := map[string]condition{}
	for _, h := range a.hooks {
		gates[h.name] = h.gate.Check().Run
	}
	definitions, identity := gates["crd-informer-synced"], gates["start-kube-apiserver-identity-lease-controller"]
	var fairness, inFlight condition // exactly one of the two is set
	if a.fairness != nil {
		fairness = a.informersSynced
	} else {
		inFlight = succeed
	}
	var proves condition // set if there is a client certificate for calls to extension servers
	if a.cfg.ProxyClientCert != "" {
		proves = registered
	}
	var reloads condition // if set, the encryption configuration is reloaded
	if a.cfg.EncryptionConfig != "" && a.cfg.EncryptionReload {
		reloads = succeed
	}
	var out []health.Check
	for _, c := range []struct {
		name string
		run  condition // if nil, the condition of the hook with this name is used
	}{
		{"start-encryption-provider-config-automatic-reload", reloads},
		{"start-apiserver-admission-initializer", a.informersSynced},
		{"generic-apiserver-start-informers", a.informersSynced},
		{"priority-and-fairness-config-consumer", fairness},
		{"priority-and-fairness-filter", fairness},
		{"max-in-flight-filter", inFlight},
		{"storage-object-count-tracker-hook", stored},
		{"start-apiextensions-informers", definitions},
		{"start-apiextensions-controllers", definitions},
		{"crd-informer-synced", definitions},
		{"start-system-namespaces-controller", nil},
		{"peer-endpoint-reconciler-controller", identity},
		{"start-cluster-authentication-info-controller", nil},
		{"start-kube-apiserver-identity-lease-controller", identity},
		{"start-kube-apiserver-identity-lease-garbage-collector", identity},
		{"storage-readiness", stored},
		{"start-legacy-token-tracking-controller", nil},
		{"start-service-ip-repair-controllers", nil},
		{"rbac/bootstrap-roles", nil},
		{"scheduling/bootstrap-system-priority-classes", nil},
		{"priority-and-fairness-config-producer", nil},
		{"bootstrap-controller", nil},
		{"start-kubernetes-service-cidr-controller", nil},
		{"aggregator-reload-proxy-client-cert", proves},
		{"start-kube-aggregator-informers", a.informersSynced},
		{"apiservice-status-local-available-controller", registered},
		{"apiservice-status-remote-available-controller", registered},
		{"apiservice-registration-controller", registered},
		{"apiservice-discovery-controller", registered},
		{"built-in-resources-storage-version-updater", nil},
		{"kube-apiserver-autoregistration", registered},
		{"autoregister-completion", registered},
		{"apiservice-openapi-controller", registered},
		{"apiservice-openapiv3-controller", registered},
	} {
		if c.run == nil {
			c.run = gates[c.name]
		}
		if c.run == nil {
			continue // the hook is disabled
		}
		if c.name != "autoregister-completion" {
			c.name = "poststarthook/" + c.name
		}
		out = append(out, health.Check{Name: c.name, Run: c.run})
	}
	return out
}

func (a *assembly) authorizationSynced() error {
	for _, synced := range a.synced {
		if !synced() {
			return fmt.Errorf("roles, bindings or nodes not loaded yet")
		}
	}
	return nil
}

// awaitAuthorization runs once the default policy exists. It closes a.decides when roles, bindings
// and nodes are loaded. Until then, the server delays requests that no authorizer allows, instead
// of rejecting them.
func (a *assembly) awaitAuthorization(ctx context.Context) {
	err := a.poll(ctx, func(context.Context) bool { return a.authorizationSynced() == nil })
	if err == nil {
		close(a.decides)
	}
}

// hostAddress returns the machine's first global unicast IPv4 address, or the loopback address.
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

// newRandom returns a source of numbers in [0, 1) that is safe for concurrent use.
func newRandom() func() float64 {
	var mu sync.Mutex
	r := newRand()
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return r.Float64()
	}
}
