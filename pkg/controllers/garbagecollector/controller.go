// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/follow"
)

// Name is the controller's name.
const Name = "garbage-collector-controller"

const (
	// discoveryPeriod is the interval at which the controller asks the API server for the served
	// kinds.
	discoveryPeriod = 10 * time.Second
	// syncPatience is how long the controller waits for the list of objects of a kind. After that
	// it continues without this kind, so that a kind that cannot be listed does not block the
	// collection of other kinds.
	syncPatience = 30 * time.Second
	// leavingPause is how long the controller does not collect objects in a terminating namespace,
	// because the namespace controller deletes them anyway.
	leavingPause = 10 * time.Second
	// retry is the delay before an object is retried while the graph is not complete.
	retry = time.Second
	// recheck is the delay before an object is checked again if its owner exists but was never
	// shown by a watch. The deletion of such an owner is not noticed otherwise.
	recheck = time.Minute
)

// Controller implements controller.Controller.
type Controller struct {
	controller.Deps
	graph      *graph
	queue      *controller.Queue
	pods       cache.SharedIndexInformer
	namespaces corelisters.NamespaceLister
	failures   prometheus.Counter

	mu       sync.Mutex
	monitors map[schema.GroupVersionResource]*monitor
	// partial means that the last discovery failed for some API groups.
	partial bool
}

// kind is the kind of a resource and whether it is namespaced, as discovery reports it.
type kind struct {
	schema.GroupVersionKind
	namespaced bool
}

// monitor watches the objects of one resource.
type monitor struct {
	kind   kind
	stop   func() // returns when the monitor will not change the graph any more
	synced cache.InformerSynced
	since  time.Time
}

// New returns the controller.
func New(d controller.Deps) (controller.Controller, error) {
	c := &Controller{
		Deps: d, graph: newGraph(), monitors: map[schema.GroupVersionResource]*monitor{},
		pods:       d.Informers.Core().V1().Pods().Informer(),
		namespaces: d.Informers.Core().V1().Namespaces().Lister(),
		failures: promauto.With(d.Metrics).NewCounter(prometheus.CounterOpts{
			Subsystem: "garbagecollector_controller", Name: "resources_sync_error_total",
			Help: "[ALPHA] Number of garbage collector resources sync errors",
		}),
	}
	c.queue = controller.NewQueue(Name, d.Clock, d.Log, d.Options.Workers, c.collect)
	return c, nil
}

// Run implements controller.Controller.
func (c *Controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.queue.Run(ctx) })
	g.Go(func() error {
		c.discover(ctx)
		controller.RunEvery(ctx, c.Clock, discoveryPeriod, c.discover)
		return nil
	})
	return g.Wait()
}

// graphComplete reports whether the graph shows all objects. Nothing is collected before, because
// the controller might orphan an object without seeing all its dependents; they would then be
// deleted.
func (c *Controller) graphComplete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.monitors {
		if !m.synced() && c.Clock.Since(m.since) < syncPatience {
			return false
		}
	}
	return len(c.monitors) > 0 // without monitors, discovery has not succeeded yet
}

// discover starts a monitor for each kind that is served and stops the monitors of other kinds. If
// discovery failed for some API groups, the monitors of their kinds continue.
func (c *Controller) discover(ctx context.Context) {
	lists, err := c.Discovery.ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		c.Log.Warn("Failed to read the kinds that the API server serves", "err", err)
		c.failures.Inc()
		return
	}
	want := map[schema.GroupVersionResource]kind{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			deletable := slices.Contains(r.Verbs, "delete") && slices.Contains(r.Verbs, "list") &&
				slices.Contains(r.Verbs, "watch")
			if deletable && r.Name != "events" {
				want[gv.WithResource(r.Name)] = kind{gv.WithKind(r.Kind), r.Namespaced}
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for gvr, m := range c.monitors {
		// A kind also needs a new monitor if its CustomResourceDefinition was recreated with
		// another scope.
		if k, served := want[gvr]; served && k != m.kind || !served && err == nil {
			m.stop()
			delete(c.monitors, gvr)
			c.queueAll(c.graph.forget(m.kind.GroupVersionKind))
		}
	}
	changed := c.partial || err != nil
	c.partial = err != nil
	for gvr, k := range want {
		if c.monitors[gvr] == nil {
			c.monitors[gvr] = c.watch(ctx, gvr, k)
			changed = true
		}
	}
	if changed {
		c.Mapper.Reset()
		c.queueAll(c.graph.unsettled())
	}
}

// watch starts a monitor for a resource. It watches only the metadata of the objects.
func (c *Controller) watch(ctx context.Context, gvr schema.GroupVersionResource, k kind) *monitor {
	if gvr == pods {
		return c.share(k)
	}
	ctx, cancel := context.WithCancel(ctx)
	informer := metadatainformer.NewFilteredMetadataInformer(c.Metadata, gvr, metav1.NamespaceAll, 0,
		cache.Indexers{}, follow.Latest).Informer()
	if err := informer.SetTransform(onlyOwners); err != nil {
		// Cannot happen: the informer has not started yet.
		panic(fmt.Sprintf("garbagecollector: transform of a new informer: %v", err))
	}
	registration, err := informer.AddEventHandler(c.follow(k.GroupVersionKind))
	if err != nil {
		// Cannot happen: the informer has not stopped.
		panic(fmt.Sprintf("garbagecollector: handler of a new informer: %v", err))
	}
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	stop := func() { cancel(); running.Wait() }
	return &monitor{kind: k, stop: stop, synced: registration.HasSynced, since: c.Clock.Now()}
}

// pods is the resource that the controller reads from the shared cache: pods change most often, and
// other controllers watch them anyway.
var pods = v1.SchemeGroupVersion.WithResource("pods")

// share returns a monitor for pods, which gets the events of the shared cache.
func (c *Controller) share(k kind) *monitor {
	m := &monitor{kind: k, stop: func() {}, synced: func() bool { return true }, since: c.Clock.Now()}
	registration, err := c.pods.AddEventHandler(c.follow(k.GroupVersionKind))
	if err != nil {
		c.Log.Warn("Failed to watch pods", "err", err) // happens only when the process is terminating
		return m
	}
	m.stop, m.synced = func() { _ = c.pods.RemoveEventHandler(registration) }, registration.HasSynced
	return m
}

// follow returns an event handler that updates the graph with the objects of a kind, and queues the
// objects to decide about.
func (c *Controller) follow(gvk schema.GroupVersionKind) cache.ResourceEventHandler {
	set := func(o any) {
		if m, ok := o.(metav1.Object); ok {
			c.queueAll(c.graph.set(identity{gvk, m.GetNamespace(), m.GetName(), m.GetUID()}, m))
		}
	}
	remove := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if m, ok := o.(metav1.Object); ok {
			c.queueAll(c.graph.remove(m.GetUID()))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: set,
		UpdateFunc: func(old, o any) {
			was, ok := old.(metav1.Object)
			is, also := o.(metav1.Object)
			if ok && also && was.GetUID() != is.GetUID() {
				remove(old)
			}
			set(o)
		},
		DeleteFunc: remove,
	}
}

// onlyOwners returns a copy of an object's metadata with only the fields that the graph of owners
// and dependents needs.
func onlyOwners(o any) (any, error) {
	m, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	return &metav1.PartialObjectMetadata{
		TypeMeta: m.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
			DeletionTimestamp: m.DeletionTimestamp,
			Finalizers:        m.Finalizers, OwnerReferences: m.OwnerReferences,
		},
	}, nil
}

func (c *Controller) queueAll(uids []types.UID) {
	for _, uid := range uids {
		c.queue.Add(string(uid))
	}
}
