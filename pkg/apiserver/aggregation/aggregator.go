// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	definitions "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/workqueue"
	componentmetrics "k8s.io/component-base/metrics"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	apiservices "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
	localstatus "k8s.io/kube-aggregator/pkg/controllers/status/local"
	"k8s.io/kube-aggregator/pkg/controllers/status/metrics"
	remotestatus "k8s.io/kube-aggregator/pkg/controllers/status/remote"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/daemon"
	"keelson.dev/keelson/pkg/outbound"
)

const (
	// workers is the number of workers of each controller of the library k8s.io/kube-aggregator.
	workers = 5
	// identityInterval is how often the certificate files are checked for changes.
	identityInterval = time.Minute
)

// Config has the dependencies of an Aggregator.
type Config struct {
	// Client is a client of this server with all rights.
	Client *rest.Config
	// Informers are the server's informers, used for services and their endpoints.
	Informers informers.SharedInformerFactory
	// Resolver finds the addresses of services.
	Resolver Resolver
	// Outbound decides to which addresses the server may connect.
	Outbound outbound.Policy
	// PassRedirects passes redirects of extension servers on to clients.
	PassRedirects bool
	// Tracing exports the spans of requests to extension servers. Nil means no tracing.
	Tracing *daemon.Tracing
	// Own are the built-in groups and versions.
	Own []schema.GroupVersion
	// Served are handlers of further group versions, which this server answers itself. If an
	// APIService names a service for the group version, the service answers instead.
	Served map[schema.GroupVersion]http.Handler
	// CertFile and KeyFile are the client certificate by which extension servers recognize this
	// server. They are reloaded when they change.
	CertFile, KeyFile string
	// Metrics gets the metrics of APIServices, with Kubernetes' names.
	Metrics prometheus.Registerer
	Clock   clock.Clock
	Log     *slog.Logger
}

// Aggregator routes requests to the servers of APIServices. It is safe for concurrent use.
type Aggregator struct {
	cfg         Config
	dial        *transport.DialHolder
	factories   []interface{ Start(<-chan struct{}) }
	services    apiservices.APIServiceInformer
	definitions definitions.CustomResourceDefinitionInformer
	registrar   registrar
	status      []interface {
		Run(workers int, stop <-chan struct{})
	}

	// carriers has a carrier for each APIService that names a service or has a handler of
	// Config.Served. The map is never modified: a changed copy replaces it.
	carriers atomic.Pointer[map[schema.GroupVersion]*carrier]
	proof    atomic.Pointer[proof]

	queue workqueue.TypedRateLimitingInterface[string] // names of APIServices whose discovery is to be repeated
	found found

	merged merged

	mu       sync.Mutex
	own      map[schema.GroupVersion]bool
	versions map[string][]schema.GroupVersion // served versions, by the name of the custom resource definition
	defined  map[schema.GroupVersion]int      // number of custom resource definitions that serve a group version
	pending  map[string]bool                  // built-in APIServices that have not been available yet, by name
}

// registrar creates and deletes the APIServices of built-in groups and of custom resources.
type registrar interface {
	autoregister.AutoAPIServiceRegistration
	Run(workers int, stop <-chan struct{})
}

// proof is the client certificate and key that this server presents to extension servers.
type proof struct{ cert, key []byte }

// New returns an Aggregator. It starts nothing.
func New(cfg Config) (*Aggregator, error) {
	dial := &transport.DialHolder{Dial: outbound.NewDialer(cfg.Outbound).DialContext}
	a := &Aggregator{
		cfg: cfg, dial: dial, own: map[schema.GroupVersion]bool{}, pending: map[string]bool{},
		versions: map[string][]schema.GroupVersion{}, defined: map[schema.GroupVersion]int{},
	}
	client, err := aggregatorclient.NewForConfig(cfg.Client)
	if err != nil {
		return nil, fmt.Errorf("client of APIServices: %w", err)
	}
	crds, err := apiextensionsclient.NewForConfig(cfg.Client)
	if err != nil {
		return nil, fmt.Errorf("client of definitions: %w", err)
	}
	services, custom := aggregatorinformers.NewSharedInformerFactory(client, 0),
		apiextensionsinformers.NewSharedInformerFactory(crds, 0)
	a.factories = []interface{ Start(<-chan struct{}) }{services, custom}
	a.services = services.Apiregistration().V1().APIServices()
	a.definitions = custom.Apiextensions().V1().CustomResourceDefinitions()
	a.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](
		firstRetry, refresh))
	a.carriers.Store(&map[schema.GroupVersion]*carrier{})
	a.loadIdentity()
	if err := a.services.Informer().AddIndexers(cache.Indexers{byGroup: groupOf}); err != nil {
		return nil, fmt.Errorf("index of APIServices: %w", err)
	}
	if err := a.keepServices(client); err != nil {
		return nil, err
	}
	return a, a.followServices()
}

// keepServices sets up the controllers of k8s.io/kube-aggregator for APIServices.
func (a *Aggregator) keepServices(client aggregatorclient.Interface) error {
	a.registrar = autoregister.NewAutoRegisterController(a.services, client.ApiregistrationV1())
	for _, s := range ownServices(a.cfg.Own) {
		a.own[schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}] = true
		a.pending[s.Name] = true
		a.registrar.AddAPIServiceToSyncOnStart(s)
	}
	for gv := range a.cfg.Served {
		a.own[gv] = true
		a.registrar.AddAPIServiceToSyncOnStart(local(gv, served()))
	}
	unavailable := metrics.New()
	// A registry is also a collector. If the server gathered from two registries, it would check all
	// of its metrics twice.
	registry := componentmetrics.NewKubeRegistry()
	if err := errors.Join(unavailable.Register(registry.Register, registry.CustomRegister),
		a.cfg.Metrics.Register(registry.Registerer().(prometheus.Collector))); err != nil {
		return fmt.Errorf("metrics of APIServices: %w", err)
	}
	ours, err := localstatus.New(a.services, client.ApiregistrationV1(), unavailable)
	if err != nil {
		return fmt.Errorf("availability: %w", err)
	}
	others, err := remotestatus.New(a.services, a.cfg.Informers.Core().V1().Services(),
		a.cfg.Informers.Discovery().V1().EndpointSlices(),
		client.ApiregistrationV1(), a.dial, a.identity, a.cfg.Resolver, unavailable)
	if err != nil {
		return fmt.Errorf("availability: %w", err)
	}
	a.status = append(a.status, ours, others)
	return nil
}

func (a *Aggregator) followServices() error {
	_, err := a.services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.learn(obj) },
		UpdateFunc: func(_, obj any) { a.learn(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if s, ok := obj.(*apiregistrationv1.APIService); ok {
				a.change(s, nil)
			}
		},
	})
	return err
}

func (a *Aggregator) learn(obj any) {
	s, ok := obj.(*apiregistrationv1.APIService)
	if !ok {
		return
	}
	if s.Spec.Service != nil {
		a.change(s, a.newCarrier(s))
		return
	}
	a.change(s, a.servedBy(s))
	if helper.IsAPIServiceConditionTrue(s, apiregistrationv1.Available) {
		a.mu.Lock()
		delete(a.pending, s.Name)
		a.mu.Unlock()
	}
}

// servedBy returns a carrier that calls a handler of Config.Served, or nil if Config.Served has
// none for the group version of the APIService.
func (a *Aggregator) servedBy(s *apiregistrationv1.APIService) *carrier {
	gv := schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}
	if h := a.cfg.Served[gv]; h != nil {
		return &carrier{name: s.Name, gv: gv, available: true, served: h}
	}
	return nil
}

// change sets the carrier of an APIService. c is nil if the APIService was deleted, or if it names
// no service and Config.Served has no handler for it.
func (a *Aggregator) change(s *apiregistrationv1.APIService, c *carrier) {
	gv := schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}
	a.mu.Lock()
	defer a.mu.Unlock()
	old := *a.carriers.Load()
	if c == nil && old[gv] == nil {
		return
	}
	next := maps.Clone(old)
	delete(next, gv)
	if c != nil {
		next[gv] = c
	}
	a.carriers.Store(&next)
	a.queue.Add(s.Name)
}

// identity returns the client certificate and key for extension servers, or nil if no files are
// configured.
func (a *Aggregator) identity() (cert, key []byte) {
	p := a.proof.Load()
	return p.cert, p.key
}

// loadIdentity reloads the files of the client certificate and key, and reports whether they have
// changed. If they cannot be read, the previous contents stay in use.
func (a *Aggregator) loadIdentity() bool {
	old := a.proof.Load()
	if old == nil {
		old = &proof{}
		a.proof.Store(old)
	}
	if a.cfg.CertFile == "" {
		return false
	}
	cert, err := os.ReadFile(a.cfg.CertFile)
	if err != nil {
		a.cfg.Log.Error("Failed to read the client certificate for extension servers", "err", err)
		return false
	}
	key, err := os.ReadFile(a.cfg.KeyFile)
	if err != nil {
		a.cfg.Log.Error("Failed to read the client key for extension servers", "err", err)
		return false
	}
	if bytes.Equal(cert, old.cert) && bytes.Equal(key, old.key) {
		return false
	}
	a.proof.Store(&proof{cert, key})
	return true
}

// Run runs the controllers of APIServices and the discovery of extension servers until ctx is done.
func (a *Aggregator) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	known, err := a.followDefinitions()
	if err != nil {
		a.cfg.Log.Error("Failed to watch custom resource definitions", "err", err)
		return
	}
	for _, f := range a.factories {
		f.Start(ctx.Done())
	}
	for _, c := range a.status {
		wg.Go(func() { c.Run(workers, ctx.Done()) })
	}
	wg.Go(func() { a.runDiscovery(ctx) })
	wg.Go(func() { a.followIdentity(ctx) })
	// The registrar deletes the APIServices of custom resources without a definition, so it starts
	// only after all definitions are loaded.
	if cache.WaitForCacheSync(ctx.Done(), known) {
		a.registrar.Run(workers, ctx.Done())
	}
}

// followIdentity replaces all carriers when the client certificate changes, so that they use the
// new one.
func (a *Aggregator) followIdentity(ctx context.Context) {
	ticker := a.cfg.Clock.NewTicker(identityInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if a.loadIdentity() {
			for _, s := range a.services.Informer().GetStore().List() {
				a.learn(s)
			}
		}
	}
}

// Registered returns an error until each of the server's own APIServices has been available once.
func (a *Aggregator) Registered() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pending) > 0 {
		return fmt.Errorf("%d APIServices are not available yet", len(a.pending))
	}
	return nil
}

// Handler returns a handler that routes requests for carriers' group versions to their carriers,
// and all other requests to local.
func (a *Aggregator) Handler(local http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := a.carrierOf(r.URL.Path); c != nil {
			c.ServeHTTP(w, r)
			return
		}
		if r.URL.Path == "/openapi/v2" && a.serveMerged(w, r, local) {
			return
		}
		local.ServeHTTP(w, r)
	})
}

// carrierOf returns the carrier of a path's group version, or nil.
func (a *Aggregator) carrierOf(path string) *carrier {
	path, document := strings.CutPrefix(path, "/openapi/v3")
	gv, ok := groupVersion(path)
	if !ok {
		return nil
	}
	c := (*a.carriers.Load())[gv]
	if c == nil || document && !a.documented(c) {
		return nil
	}
	return c
}

// groupVersion returns the group version in a path of the API.
func groupVersion(path string) (schema.GroupVersion, bool) {
	if rest, ok := strings.CutPrefix(path, "/apis/"); ok {
		group, rest, _ := strings.Cut(rest, "/")
		version, _, _ := strings.Cut(rest, "/")
		return schema.GroupVersion{Group: group, Version: version}, group != "" && version != ""
	}
	rest, ok := strings.CutPrefix(path, "/api/")
	version, _, _ := strings.Cut(rest, "/")
	return schema.GroupVersion{Version: version}, ok && version != ""
}
