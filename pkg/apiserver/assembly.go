// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/rest"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/transcode"
	"keelson.dev/keelson/pkg/api/openapi"
	"keelson.dev/keelson/pkg/apiserver/admission"
	"keelson.dev/keelson/pkg/apiserver/admission/webhookhealth"
	"keelson.dev/keelson/pkg/apiserver/aggregation"
	"keelson.dev/keelson/pkg/apiserver/authn"
	"keelson.dev/keelson/pkg/apiserver/authz"
	"keelson.dev/keelson/pkg/apiserver/bootstrap"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/connect"
	"keelson.dev/keelson/pkg/apiserver/customresources"
	"keelson.dev/keelson/pkg/apiserver/filters"
	"keelson.dev/keelson/pkg/apiserver/nodeauth"
	"keelson.dev/keelson/pkg/apiserver/rbac"
	"keelson.dev/keelson/pkg/apiserver/satoken"
	"keelson.dev/keelson/pkg/apiserver/services"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/features"
	"keelson.dev/keelson/pkg/health"
)

// assembly is a server with all its parts, built over the open databases.
type assembly struct {
	server *Server
	cfg    *config.Config
	scheme *runtime.Scheme
	stores stores

	databases *databases

	self       *self
	audiences  authenticator.Audiences
	authn      authenticator.Request
	policy     *bootstrap.Policy // the default RBAC policy
	rules      *rbac.Index
	synced     []func() bool // each reports whether a cache that authorization reads is loaded
	decides    chan struct{} // closed once the caches of synced are loaded
	authz      authorizer.UnconditionalAuthorizer
	ruleSource authorizer.RuleResolver
	graph      *nodeauth.Graph
	marks      *nodeauth.Marks
	namespaces *store.Store   // set by buildAPI
	podRefs    *nodeauth.Pods // nil if nodes are not authorized by their pods
	// bootstrapTokens is nil if bootstrap tokens are not accepted.
	bootstrapTokens cache.SharedIndexInformer
	mapper          meta.RESTMapper // maps all served kinds
	admission       *admission.Chain
	services        *services.Allocator
	ports           *services.Ports
	verifier        *satoken.Verifier
	rows            []*resource.Row // the rows of the kind table that this server serves
	api             *rest.Server
	custom          *customresources.Controller
	aggregator      *aggregation.Aggregator
	kubelets        *connect.Kubelets
	proxies         *connect.Proxies
	certificates    *certificateMetrics
	fairness        *filters.Fairness // nil if MaxReads and MaxWrites limit requests instead
	members         store.ReadWriter  // store of the leases by which running servers announce themselves

	ranges       *bootstrap.ServiceCIDR // set by buildHooks, except its recorder of events, which run sets
	repair       *services.Repair       // as ranges
	leaveCluster func(context.Context) error
	close        []func() // functions that close idle connections

	started *health.Gate // opens when the informers have synced
	hooks   []*hook
	handler http.Handler
}

// assemble builds all parts in the order of their dependencies. It starts nothing.
func (s *Server) assemble(ctx context.Context, d *databases) (*assembly, error) {
	a := &assembly{
		server: s, cfg: &s.cfg, scheme: s.scheme, databases: d,
		stores:  stores{d, transcode.NewTypes(), map[schema.GroupVersionKind]*shared{}},
		started: health.NewGate("informer-sync", "informers not synced yet"),
		decides: make(chan struct{}),
	}
	d.notify = a.notifyOfStore
	var err error
	if a.self, err = newSelf(ctx); err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		a.buildAuthn, a.buildAuthz, a.buildServices,
		func() error { return a.buildAdmission(ctx) },
		a.buildAPI, a.buildHandler,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *assembly) buildAuthn() error {
	s := a.server
	a.audiences = s.audiences()
	get := getter{a.self.client}
	a.verifier = &satoken.Verifier{
		Keys: s.keys, Issuers: a.cfg.ServiceAccountIssuers, Audiences: a.audiences,
		Get: get, Lookup: a.cfg.ServiceAccountLookup, Used: a.noteUse, Clock: s.deps.Clock,
		Metrics: satoken.NewMetrics(s.deps.Metrics),
	}
	cfg := authn.Config{
		ClientCA: s.clientCA, ProxyCA: s.proxyCA, RequestHeader: a.cfg.RequestHeader,
		TokenFile: a.cfg.TokenAuthFile, ServiceAccounts: a.verifier,
		Issuers: s.issuers, Webhook: a.cfg.Authentication.Webhook,
		Audiences: a.audiences, Anonymous: s.issuers.Anonymous(), Clock: s.deps.Clock,
	}
	if a.cfg.BootstrapTokenAuth {
		a.bootstrapTokens = a.self.bootstrapTokens()
		cfg.Bootstrap = corelisters.NewSecretLister(a.bootstrapTokens.GetIndexer())
	}
	var err error
	a.authn, err = authn.New(cfg)
	return err
}

// buildAuthz builds the chain of authorizers: system:masters first, then the configured ones.
func (a *assembly) buildAuthz() (err error) {
	if a.policy, err = bootstrap.DefaultPolicy(a.cfg.Features.Enabled); err != nil {
		return err
	}
	chain := a.server.authorizers
	a.rules = rbac.NewIndex()
	members := map[string]authz.Authorizer{}
	// The index of roles is needed even without mode RBAC, to check for escalation: users must not
	// create roles with rights that they lack. Another server may grant these rights by RBAC, and
	// so may this server after a restart with other flags.
	if chain.Has(config.ModeRBAC) || slices.Contains(a.server.groups, rbacv1.GroupName) {
		synced, err := a.rules.Watch(a.self.informers.Rbac().V1())
		if err != nil {
			return err
		}
		a.synced = append(a.synced, synced)
	}
	if chain.Has(config.ModeRBAC) {
		members[config.ModeRBAC] = a.rules
	}
	a.marks = nodeauth.NewMarks(a.self.client, a.server.deps.Clock, a.server.log)
	if chain.Has(config.ModeNode) {
		a.graph = nodeauth.NewGraph()
		synced, err := a.graph.Watch(a.self.informers, a.cfg.Features.Enabled(features.PodCertificateRequest))
		if err != nil {
			return err
		}
		a.podRefs = &nodeauth.Pods{
			Graph: a.graph, Store: a.store(corev1.Resource("pods")), Clock: a.server.deps.Clock, Log: a.server.log,
		}
		known := func() bool { return synced() && a.podRefs.Synced() && a.marks.Synced() }
		a.synced = append(a.synced, known)
		rules, err := a.policy.NodeRules()
		if err != nil {
			return err
		}
		members[config.ModeNode] = nodeauth.NewAuthorizer(a.graph, rbac.Allows(rules), a.marks.Fenced, known)
	}
	if err := chain.Build(members, a.decides); err != nil {
		return fmt.Errorf("invalid authorization config: %w", err)
	}
	a.authz, a.ruleSource = chain, chain
	return nil
}

func (a *assembly) buildServices() error {
	var families []corev1.IPFamily
	for _, r := range a.cfg.ServiceClusterIPRanges {
		families = append(families, services.Family(r))
	}
	known, ranges := services.Follow(a.self.informers.Networking().V1())
	a.ports = services.NewPorts(a.stores.portRanges(), a.cfg.ServiceNodePorts, newRand())
	a.services = &services.Allocator{
		IPs:   services.NewIPs(a.self.client.NetworkingV1().IPAddresses(), known, ranges, newRand()),
		Ports: a.ports, Families: families, Log: a.server.log,
	}
	return nil
}

func (a *assembly) buildAdmission(ctx context.Context) error {
	a.mapper = admission.NewMapper(a.self.client.Discovery(), a.server.deps.Clock)
	policy, err := a.cfg.Transport.Outbound()
	if err != nil {
		return err
	}
	nodes, err := a.cfg.Transport.NodeAddresses()
	if err != nil {
		return err
	}
	a.admission, err = admission.New(ctx, admission.Deps{
		Only: a.cfg.OnlyAdmission, Enable: a.cfg.EnableAdmission, Disable: a.cfg.DisableAdmission,
		Client: a.self.client, Dynamic: a.self.dynamic, Informers: a.self.informers,
		Authorizer: a.authz, Graph: a.graph, Marks: a.marks, Nodes: a.store(corev1.Resource("nodes")),
		Clock: a.server.deps.Clock, Log: a.server.log, Metrics: a.server.deps.Metrics,
		Mapper: a.mapper, EndpointRouting: a.cfg.AggregatorRouting, Outbound: policy, Tracing: a.server.tracing,
		NotReadySeconds: a.cfg.NotReadySeconds, UnreachableSeconds: a.cfg.UnreachableSeconds,
		ConfigFile: a.cfg.AdmissionConfig, Drained: ctx.Done(), Reserved: a.reserved(), NodeAddresses: nodes,
		Emulated: a.cfg.Features.Emulated,
	})
	return err
}

func (a *assembly) buildAPI() error {
	err := a.buildRows()
	if err != nil {
		return err
	}
	if a.aggregator, err = a.newAggregator(a.rows); err != nil {
		return err
	}
	_, write := filters.ConnectionTimeouts(a.cfg.RequestTimeout)
	a.api, err = rest.New(rest.Config{
		Rows: a.rows, Scheme: a.scheme, Store: a.storeOf, Clock: a.server.deps.Clock, Log: a.server.log,
		KeyRoot:   path.Join("/", a.cfg.EtcdPrefix),
		Admission: a.admission, Authorizer: a.authz,
		TypeConverter: newTypeConverter(a.scheme, openapi.Source{}),
		OpenAPI:       openapi.Source{},
		Groups:        a.server.groups, MinWatchTimeout: a.cfg.MinRequestWatch, StallTimeout: write,
		NoWatchList: !a.cfg.Features.Enabled(features.WatchList), Missing: a.arrived,
		NoStorageVersionHash: !a.cfg.Features.Enabled(features.StorageVersionHash),
		NamespaceCheck:       a.namespaceCheck,
		NoGarbageCollection:  !a.cfg.Etcd.GarbageCollector,
		GroupPriority:        a.aggregator.GroupPriority, Aggregator: apiregistrationv1.GroupName,
		RemoteGroups: a.aggregator.Groups, RemoteOpenAPI: a.aggregator.OpenAPI,
		Registered: a.aggregator.Versions,
		Pages:      openAPIPages(),
		Transcode:  a.stores.types, Metrics: a.server.deps.Metrics, Version: daemon.Version,
		ServerAddress: a.external(),
	})
	if err != nil {
		return fmt.Errorf("API: %w", err)
	}
	if a.custom, err = a.newCustomResources(); err != nil {
		return err
	}
	if a.podRefs != nil {
		a.podRefs.Part = registry.Part(a.registry(corev1.Resource("pods"))().Row(), a.stores.types, nodeauth.PodPaths()...)
	}
	a.members = a.stores.serverLeases(int64(serverLease.Seconds()))
	return nil
}

// advertised returns the IP address at which the nodes and pods of the cluster reach this server.
func (a *assembly) advertised() net.IP { return advertised(a.cfg) }

func advertised(cfg *config.Config) net.IP {
	for _, s := range []string{cfg.AdvertiseAddress, cfg.BindAddress} {
		if ip := net.ParseIP(s); ip != nil && !ip.IsUnspecified() && !ip.IsLoopback() {
			return ip
		}
	}
	return hostAddress()
}

// address returns the advertised host and port of this server. External clients see it in discovery
// documents, and the server's lease contains it.
func (a *assembly) address() string {
	port := a.cfg.SecurePort
	if addr := a.server.address.Load(); addr != nil {
		port = addr.Port
	}
	host := a.advertised()
	if told := net.ParseIP(a.cfg.AdvertiseAddress); told != nil && !told.IsUnspecified() {
		host = told // used even if it is a loopback address, because the operator has chosen it
	}
	return net.JoinHostPort(host.String(), strconv.Itoa(port))
}

// external returns the host and port that discovery documents give as the address of this server.
func (a *assembly) external() string {
	name := a.cfg.HTTP.ExternalHostname
	if name == "" {
		return a.address()
	}
	if _, _, err := net.SplitHostPort(name); err == nil {
		return name
	}
	return net.JoinHostPort(name, strconv.Itoa(a.port()))
}

// buildHandler builds the handler of all requests: the filters, followed by the mux.
func (a *assembly) buildHandler() error {
	s := a.server
	a.buildFairness()
	metrics, err := filters.NewMetrics(s.deps.Metrics)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	origins, err := a.cfg.HTTP.Origins()
	if err != nil {
		return err
	}
	cfg := filters.Config{
		Authenticator: a.authn, Authorizer: a.authz, Audiences: a.audiences,
		ProxyHeaders: filters.ProxyHeaders{
			Names: slices.Concat(a.cfg.RequestHeader.UsernameHeaders, a.cfg.RequestHeader.UIDHeaders,
				a.cfg.RequestHeader.GroupHeaders),
			ExtraPrefixes: a.cfg.RequestHeader.ExtraHeaderPrefixes,
		},
		Serializer: serializer.NewCodecFactory(a.scheme).WithoutConversion(), WriteError: rest.WriteError,
		RequestTimeout: a.cfg.RequestTimeout, MaxReadsInFlight: a.cfg.MaxReads, MaxWrites: a.cfg.MaxWrites,
		Fairness: a.fairness,
		Clock:    s.deps.Clock, Log: s.log, Metrics: metrics, InFlight: s.inFlight,
		Spans:       s.tracing.Provider(),
		CORSOrigins: origins, TransportSecurity: a.cfg.HTTP.TransportSecurity,
		RetryAfterShutdown: a.cfg.HTTP.RetryAfterShutdown,
		GoawayChance:       a.cfg.HTTP.GoawayChance, Random: newRandom(),
	}
	if s.audit != nil {
		cfg.Audit = &filters.Audit{Policy: s.audit.Policy, Sink: s.audit.Sink}
	}
	served := a.aggregator.Handler(a.api)
	a.self.open(filters.Trusted(served, cfg))
	if err := a.buildHooks(); err != nil {
		return err
	}
	m, err := a.buildMux(served)
	if err != nil {
		return err
	}
	a.handler = withEpoch(filters.Chain(m, cfg), a.databases.epoch)
	return nil
}

func (a *assembly) buildMux(served http.Handler) (*mux, error) {
	s := a.server
	err := errors.Join(features.Register(s.deps.Metrics, &a.cfg.Features),
		features.RegisterVersions(s.deps.Metrics, &a.cfg.Features))
	if err != nil {
		return nil, err
	}
	for _, c := range []prometheus.Collector{a.storageMetrics(), a.admission.Webhooks.Collector()} {
		if err := s.deps.Metrics.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	m := &mux{api: served, served: a.groupVersions, exact: map[string]http.Handler{}, prefixes: map[string]http.Handler{}}
	m.drivers = a.proxies.Drivers
	version, err := versionDocument(a.cfg.Features.VersionInfo())
	if err != nil {
		return nil, err
	}
	m.document("/version", rest.GetOnly(document("application/json", version), "application/json"))
	started := s.deps.Clock.Now()
	m.handle("/metrics", sinceStart(metricsHandler(s.deps.Metrics, s.metrics), started))
	results := health.NewResults()
	m.handle(health.ResultsPath, sinceStart(results.Handler(), started))
	a.addStoreReport(m)
	m.handle(webhookhealth.Path, a.admission.Webhooks.Handler(a.self.informers.Admissionregistration().V1()))
	if a.cfg.Profiling {
		m.addProfiling(a.cfg.Debug.Contention)
		m.addDebugFlags(a.cfg.Verbosity)
	}
	if a.cfg.Debug.Logs {
		m.addLogs()
	}
	if a.fairness != nil {
		m.handle(fairnessPath, a.fairnessDebug())
	}
	conf, jwks, err := satoken.Discovery(a.cfg.ServiceAccountIssuers[0], a.cfg.ServiceAccountJWKSURI, a.external(), s.keys)
	if err != nil {
		s.log.Info("Service account issuer discovery is off", "err", err)
	} else {
		m.document(satoken.DiscoveryPath, rest.GetOnly(conf, satoken.DiscoveryType))
		m.document(satoken.JWKSPath, rest.GetOnly(jwks, satoken.JWKSType))
	}
	for root, checks := range a.checks() {
		h := health.Handler(root, s.log, results.Watch(strings.TrimPrefix(root, "/"), checks)...)
		m.handle(root, h)
		for _, c := range checks {
			m.exact[root+"/"+c.Name] = h
		}
	}
	a.addSnapshots(m)
	m.addZPages(a.cfg.Flags, &a.cfg.Features)
	return m, nil
}

// run runs all background work and returns when ctx is done and the work has ended.
func (a *assembly) run(ctx context.Context) {
	defer a.startEvents(ctx)()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() {
		for _, c := range a.close {
			c()
		}
	}()
	a.self.informers.Start(ctx.Done())
	wg.Go(func() {
		// Shut the informers down only after ctx is done. A factory that is shutting down starts no
		// more informers, and admission policies start informers for their parameters while the server
		// runs.
		<-ctx.Done()
		a.self.informers.Shutdown()
	})
	wg.Go(func() {
		if a.self.informers.WaitForCacheSyncWithContext(ctx).AsError() != nil {
			return // the only possible error is that ctx has ended
		}
		a.started.Open()
		a.announce(ctx)
	})
	wg.Go(func() { a.marks.Run(ctx) })
	if a.podRefs != nil {
		wg.Go(func() { a.podRefs.Run(ctx) })
	}
	if a.bootstrapTokens != nil {
		wg.Go(func() { a.bootstrapTokens.RunWithContext(ctx) })
	}
	wg.Go(func() { a.runHooks(ctx) })
	wg.Go(func() { a.runKeepers(ctx) })
	wg.Go(func() { a.custom.Run(ctx) })
	wg.Go(func() { a.aggregator.Run(ctx) })
	wg.Go(func() { a.runFairness(ctx) })
}
