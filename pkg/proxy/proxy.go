// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/follow"
	"keelson.dev/keelson/pkg/proxy/announce"
	"keelson.dev/keelson/pkg/proxy/conntrack"
	"keelson.dev/keelson/pkg/proxy/healthcheck"
	"keelson.dev/keelson/pkg/proxy/kernel"
	"keelson.dev/keelson/pkg/proxy/ruleset"
	"keelson.dev/keelson/pkg/proxy/service"
)

// Config is the configuration of a node's proxy.
type Config struct {
	// Node is the name of the node.
	Node string
	// Families are the IP families to serve. If it is empty, both are served.
	Families []ruleset.Family
	// MasqueradeAll and MasqueradeBit have the same meanings as in KubeProxyConfiguration.
	MasqueradeAll bool
	MasqueradeBit uint
	// Pods says how packets from pods of this cluster are recognized: by Interface, or, with
	// kernel.ByRange, by PodRanges. If PodsOfNode is set, the pod ranges in the Node object take
	// the place of PodRanges.
	Pods       kernel.Detector
	Interface  string
	PodRanges  []netip.Prefix
	PodsOfNode bool
	// NodePorts are the ranges of local addresses that have node ports. If NodePortsPrimary is set,
	// the first address of each IP family in the Node object has them too. If NodePortsPrimary is
	// not set and NodePorts has no range of an IP family, all local addresses of the family have
	// node ports.
	NodePorts        []netip.Prefix
	NodePortsPrimary bool
	// NodeIP is an address of the node in addition to those in its Node object.
	NodeIP netip.Addr
	// Audit is the interval between checks that the nftables tables exist. They also delete unused
	// chains.
	Audit time.Duration
	// HealthTimeout is how long a change may wait until the proxy reports that it is unhealthy.
	HealthTimeout time.Duration
	// NetNS is the file descriptor of a network namespace. 0 means the namespace of the process.
	NetNS int
}

// Deps are the proxy's dependencies.
type Deps struct {
	Client  kubernetes.Interface
	Clock   clock.Clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Tracer creates a span for each round of changes; nil disables that.
	Tracer trace.Tracer
	// Started is called when the first round of changes begins.
	Started func()
	// Event records an event on a Service: that the proxy cannot listen on its health check port.
	Event func(svc types.NamespacedName, reason, message string)
}

// Proxy is a node's service proxy.
type Proxy struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *metrics
	dirty   *dirty
	sources *sources
	health  *healthcheck.Proxy

	// Only the goroutine of Run may use the fields below.
	families []*family
	node     service.Node
	nodeSeen bool // node and ranges.Pods are those of a Node object, which may have been deleted
	ranges   kernel.Ranges
	plans    map[types.NamespacedName]service.Plan
	checks   *healthcheck.Services
	cleaner  *cleaner
	// announcer makes the node answer for addresses of load balancers. announce means that these
	// addresses have changed and announcer must be called.
	announcer *announce.Announcer
	announce  bool
}

// New returns a Proxy. It starts no goroutines and changes nothing; Run does.
func New(cfg Config, deps Deps) (*Proxy, error) {
	if cfg.Node == "" {
		return nil, errors.New("node name: must not be empty")
	}
	if len(cfg.Families) == 0 {
		cfg.Families = []ruleset.Family{ruleset.IPv4, ruleset.IPv6}
	}
	if deps.Tracer == nil {
		deps.Tracer = noop.NewTracerProvider().Tracer("")
	}
	p := &Proxy{
		cfg: cfg, deps: deps, log: deps.Log, metrics: newMetrics(deps.Metrics), dirty: newDirty(deps.Clock.Now()),
		plans: map[types.NamespacedName]service.Plan{}, node: service.Node{Name: cfg.Node},
	}
	p.health = healthcheck.NewProxy(deps.Clock, cfg.HealthTimeout, p.metrics.answered)
	p.sources = newSources(cfg.Node, deps.Client, p.dirty, deps.Clock, deps.Log)
	p.checks = healthcheck.NewServices(p.health.Healthy, p.healthAddresses, p.checkFailed, p.log)
	return p, nil
}

// Health returns the health of the proxy itself.
func (p *Proxy) Health() *healthcheck.Proxy { return p.health }

// Run keeps the nftables tables up to date until ctx ends. It returns earlier only if it cannot
// open the kernel's interfaces.
func (p *Proxy) Run(ctx context.Context) error {
	flows, err := conntrack.Open(p.cfg.NetNS)
	if err != nil {
		return err
	}
	defer flows.Close()
	if p.announcer, err = announce.Open(p.cfg.NetNS); err != nil {
		return err
	}
	defer p.announcer.Close()
	p.cleaner = newCleaner(flows, p.deps.Clock, p.metrics, p.log, p.dirty.noteCleaned)
	for _, f := range p.cfg.Families {
		p.families = append(p.families, &family{Family: f, table: ruleset.NewTable(f), full: true})
		p.health.Queued(corev1.IPFamily(f.String()))
	}
	defer p.closeFamilies()
	defer p.checks.Close()

	ctx, cancel := context.WithCancel(ctx)
	cleaned := make(chan struct{})
	go func() { p.cleaner.run(ctx); close(cleaned) }()
	defer func() { cancel(); p.sources.wait(); <-cleaned }()
	if p.sources.start(ctx) != nil {
		return nil // an error means that ctx has ended
	}
	p.followNode()
	p.followServiceCIDRs()
	if err := p.openFamilies(); err != nil {
		return err
	}
	p.log.Info("Proxy started", "node", p.cfg.Node, "zone", p.node.Zone, "services", p.sources.objects.services.Len())
	p.deps.Started()
	p.loop(ctx)
	return nil
}

// The first and the longest delay before an nftables transaction that the kernel rejected is
// retried.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// loop applies changes until ctx ends. At first it applies all services.
func (p *Proxy) loop(ctx context.Context) {
	p.all()
	p.announce = true // an earlier process may have left other addresses on the device
	follow.Loop{
		Clock: p.deps.Clock, Wake: p.dirty.Signal, Period: p.cfg.Audit, Check: p.audit,
		FirstRetry: firstRetry, LastRetry: lastRetry,
	}.Run(ctx, p.round)
}

// all marks every service as changed.
func (p *Proxy) all() {
	services := p.sources.objects.services.All()
	p.dirty.Note(func(b *batch) {
		for n := range services {
			b.services[n] = true
		}
		for n := range p.plans {
			b.services[n] = true
		}
	})
}

// spanRound is the name of the trace span of a round, which applies the collected changes of
// services.
const spanRound = "syncProxyRules"

// round applies the collected changes of services and records a span. It returns false if some
// changes must be retried.
func (p *Proxy) round(ctx context.Context) bool {
	ctx, span := p.deps.Tracer.Start(ctx, spanRound)
	defer span.End()
	b := p.dirty.Take()
	done := p.applyBatch(ctx, &b)
	span.SetAttributes(attribute.Int("keelson.proxy.services", len(b.services)))
	if !done {
		span.SetStatus(codes.Error, "some changes were not applied")
	}
	return done
}

// applyBatch applies the collected changes of services. It returns false if some of them must be
// retried.
func (p *Proxy) applyBatch(ctx context.Context, b *batch) bool {
	if b.node && p.followNode() {
		p.all()
		more := p.dirty.Take()
		for n := range more.services {
			b.services[n] = true
		}
	}
	if b.serviceCIDRs {
		p.followServiceCIDRs()
	}
	p.metrics.collected(b)
	for name := range b.services {
		p.decide(ctx, name)
	}
	p.forgetFlows(b.cleaned)
	if p.announce {
		p.followAnnounced()
	}
	p.holdFlows()
	done := true
	for _, f := range p.families {
		done = p.apply(f) && done
	}
	done = p.answer(ctx) && done
	if !done {
		return false
	}
	p.metrics.applied()
	p.cleanFlows()
	p.observe(*b)
	return true
}

// observe records in a metric how long it took to apply changes of endpoints, since the endpoints
// controller noticed the changes of pods.
func (p *Proxy) observe(b batch) {
	now := p.deps.Clock.Now()
	for name, at := range b.triggers {
		plan := p.plans[name]
		for _, f := range p.families {
			if plan.In(f.Family) {
				p.metrics.programming.WithLabelValues(f.String()).Observe(now.Sub(at).Seconds())
			}
		}
	}
}

// decide computes the ports of one service, and updates them in the nftables tables.
func (p *Proxy) decide(ctx context.Context, name types.NamespacedName) {
	svc, endpoints := p.sources.objects.get(name)
	plan := service.Decide(svc, endpoints, p.node)
	old := p.plans[name]
	for _, f := range p.families {
		for _, port := range old.Ports {
			if port.Family() == f.Family && plan.Port(f.Family, port.Name) == nil {
				f.set(port.Name, nil)
			}
		}
		for _, port := range plan.Ports {
			if port.Family() == f.Family {
				f.set(port.Name, port.Port)
			}
		}
	}
	p.announce = p.announce || !slices.Equal(old.Announced, plan.Announced)
	if svc == nil {
		delete(p.plans, name)
	} else {
		p.plans[name] = plan
	}
	var check service.Health
	if plan.Health != nil {
		check = *plan.Health
	}
	p.checks.Set(ctx, name, check.Port, check.Local)
}

// followAnnounced collects the load balancer addresses for which this node must answer.
func (p *Proxy) followAnnounced() {
	p.ranges.Announced = nil
	for _, plan := range p.plans {
		for _, a := range plan.Announced {
			p.ranges.Announced = append(p.ranges.Announced, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	for _, f := range p.families {
		f.ranges = true
	}
}

// answer makes the node answer for the addresses of load balancers. The caller has written the
// nftables tables before, so that packets that arrive then already have rules. answer returns false
// if it must be retried.
func (p *Proxy) answer(ctx context.Context) bool {
	if !p.announce {
		return true
	}
	var list []netip.Addr
	for _, a := range p.ranges.Announced {
		list = append(list, a.Addr())
	}
	if err := p.announcer.Set(ctx, list); err != nil {
		p.log.Error("Failed to announce load balancer addresses", "err", err)
		return false
	}
	p.announce = false
	return true
}

func (p *Proxy) checkFailed(name types.NamespacedName, err error) {
	p.log.Error("Service health check port not available", "service", name, "err", err)
	p.deps.Event(name, "FailedToStartServiceHealthcheck", fmt.Sprintf("node %s failed to start healthcheck: %v",
		p.cfg.Node, err))
}
