// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/follow"
	"keelson.dev/keelson/pkg/nft"
)

// Config contains the settings of an Agent.
type Config struct {
	// Node is the name of the node whose pods the agent protects.
	Node string
	// IPv6 reports whether the machine supports IPv6.
	IPv6 bool
	// Audit is the interval between checks that the nftables tables exist. They also delete unused
	// chains and sets.
	Audit time.Duration
	// NetNS is the file descriptor of a network namespace. 0 means the namespace of the process.
	NetNS int
	// BridgeSysctls is the directory of the settings of the kernel module br_netfilter. If it is
	// empty, nft.BridgeSysctls is used.
	BridgeSysctls string
}

// Deps are an Agent's dependencies.
type Deps struct {
	Client  kubernetes.Interface
	Custom  dynamic.Interface // client for ClusterNetworkPolicies, which are custom resources
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Agent enforces network policies on one node.
type Agent struct {
	cfg     Config
	deps    Deps
	metrics *metrics
	sources *sources
	// Only the goroutine of Run may use the fields below.
	index  *Index
	tables []*family
	loaded bool // true after the caches of pods and namespaces are complete
	// unbridged is the reason, as it was last logged, why policies are not enforced between pods of
	// one bridge. It is empty if they are enforced.
	unbridged string
}

// family is the agent's nftables table of one IP family.
type family struct {
	*table
	name string
	full bool // true if the whole table must be replaced
}

// New returns an Agent. It starts no goroutines and changes nothing; Run does.
func New(cfg Config, deps Deps) (*Agent, error) {
	if cfg.Node == "" {
		return nil, errors.New("node name: must not be empty")
	}
	if cfg.BridgeSysctls == "" {
		cfg.BridgeSysctls = nft.BridgeSysctls
	}
	s := newSources(cfg.Node, deps.Client, deps.Custom, deps.Clock, deps.Log)
	return &Agent{cfg: cfg, deps: deps, metrics: newMetrics(deps.Metrics), sources: s, index: NewIndex()}, nil
}

// The first and the longest delay before a transaction that the kernel rejected is retried.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Run enforces policies until ctx ends. The nftables tables stay after that. At the start, Run does
// not change existing tables before its caches are complete.
func (a *Agent) Run(ctx context.Context) error {
	defer a.close()
	if err := a.open(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); a.sources.end() }()
	if a.sources.begin(ctx) != nil {
		return nil // an error means that ctx has ended
	}
	follow.Loop{
		Clock: a.deps.Clock, Wake: a.sources.changes.Signal, Period: a.cfg.Audit, Check: a.audit,
		FirstRetry: firstRetry, LastRetry: lastRetry,
	}.Run(ctx, a.round)
	return nil
}

func (a *Agent) open() error {
	packets := map[string]nft.Packet{"IPv4": {}}
	if a.cfg.IPv6 {
		packets["IPv6"] = nft.Packet{IPv6: true}
	}
	for name, p := range packets {
		t, err := openTable(p, a.cfg.NetNS)
		if err != nil {
			return err
		}
		a.tables = append(a.tables, &family{table: t, name: name, full: true})
	}
	return nil
}

// Remove deletes the nftables tables of an agent.
func Remove(c Config) error {
	a := &Agent{cfg: c}
	defer a.close()
	if err := a.open(); err != nil {
		return err
	}
	var errs []error
	for _, f := range a.tables {
		errs = append(errs, f.remove())
	}
	return errors.Join(errs...)
}

func (a *Agent) close() {
	for _, f := range a.tables {
		_ = f.table.close() // an error of close can be ignored, because no data is buffered
	}
}

// round applies all changes to the nftables tables. It reports whether it succeeded.
func (a *Agent) round(ctx context.Context) bool {
	start := a.deps.Clock.Now()
	a.sources.cluster.adjust(ctx, a.sources)
	if !a.loaded {
		if a.sources.policies.Len() == 0 && !a.sources.cluster.exist() {
			return a.idle()
		}
		if a.sources.start(ctx, a.sources.pods, a.sources.namespaces) != nil {
			return false // an error means that ctx has ended
		}
		a.loaded = true
		for _, f := range a.tables {
			f.full = true
		}
		a.deps.Log.Info("Network policies are enforced", "node", a.cfg.Node)
		a.checkBridges()
	}
	if a.sources.update(ctx, a.index) != nil {
		return false // an error means that ctx has ended
	}
	changes, done := a.index.Take(), true
	for _, f := range a.tables {
		if !f.full && changes.Empty() {
			continue
		}
		var err error
		if f.full {
			err = f.replace(a.index.All())
		} else {
			err = f.apply(changes)
		}
		f.full = err != nil
		if err != nil {
			done = false
			a.metrics.failures.WithLabelValues(f.name).Inc()
			a.deps.Log.Error("Kernel rejected the changes to the nftables table of network policies",
				"family", f.name, "err", err)
			continue
		}
		a.metrics.sync.WithLabelValues(f.name).Observe(a.deps.Clock.Now().Sub(start).Seconds())
		a.metrics.guarded.WithLabelValues(f.name, "ingress").Set(float64(len(f.guarded[Ingress])))
		a.metrics.guarded.WithLabelValues(f.name, "egress").Set(float64(len(f.guarded[Egress])))
	}
	return done
}

// idle handles a cluster without policies. It removes nftables tables that an earlier process may
// have left, and reports whether it succeeded.
func (a *Agent) idle() bool {
	done := true
	for _, f := range a.tables {
		if !f.full {
			continue
		}
		if err := f.remove(); err != nil {
			a.deps.Log.Error("Failed to remove the nftables table of network policies", "family", f.name, "err", err)
			done = false
			continue
		}
		f.full = false
	}
	return done
}

// checkBridges logs, and exports in a metric, whether policies are enforced between pods of one
// bridge. They are not if the node's settings exempt packets between ports of a bridge from the
// rules of IPv4 and IPv6. The agent continues in this case, because the CNI plugin may not use a
// bridge. If Keelson's own pod network is used, the kubelet then also reports that the node is not
// ready.
func (a *Agent) checkBridges() {
	why := ""
	a.metrics.bridged.Set(1)
	if err := nft.BridgeFiltered(a.cfg.BridgeSysctls); err != nil {
		why = err.Error()
		a.metrics.bridged.Set(0)
	}
	if why != "" && why != a.unbridged {
		a.deps.Log.Error("Network policies are not enforced between pods on the same bridge", "err", why)
	}
	a.unbridged = why
}

// audit checks that the nftables tables exist, and deletes unused chains and sets.
func (a *Agent) audit() {
	a.sources.cluster.refused = false
	if !a.loaded {
		return
	}
	a.checkBridges()
	for _, f := range a.tables {
		if f.full {
			continue
		}
		if there, err := f.present(); err != nil || !there {
			a.deps.Log.Error("Nftables table of network policies is missing in the kernel, writing it again",
				"family", f.name, "err", err)
			f.full = true
			continue
		}
		if err := f.sweep(); err != nil {
			a.deps.Log.Error("Failed to delete unused chains and sets of network policies, replacing the table",
				"family", f.name, "err", err)
			f.full = true
		}
	}
}
