// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/util/workqueue"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/rest"
	"keelson.dev/apiserver/store"
)

const (
	workers    = 16 // number of goroutines that update definitions
	retryFirst = 5 * time.Millisecond
	retryLast  = time.Minute
	watchRetry = time.Second
	// arriveWait is how long a request for an unknown resource waits until this server serves it.
	// Another server may have established its definition just before.
	arriveWait = 2 * time.Second
)

// Definitions returns the resource customresourcedefinitions.
func Definitions() schema.GroupResource {
	return schema.GroupResource{Group: apiextensionsv1.GroupName, Resource: "customresourcedefinitions"}
}

// Config has the dependencies and settings of a Controller.
type Config struct {
	// API serves the definitions. The controller adds the custom resources to it.
	API *rest.Server
	// Own are the server's built-in group versions. A definition cannot add resources to them.
	Own []schema.GroupVersion
	// Scheme and Store are those with which API creates its registries.
	Scheme *runtime.Scheme
	Store  func(*resource.Row) store.Interface
	// Converters creates the converter between the versions of a definition.
	Converters interface {
		NewConverter(crd *apiextensionsv1.CustomResourceDefinition) (safe, unsafe runtime.ObjectConvertor, err error)
	}
	// OpenAPI has the OpenAPI definition of ObjectMeta.
	OpenAPI rest.OpenAPI
	Clock   clock.Clock
	Log     *slog.Logger
}

// Controller maintains the status of CustomResourceDefinitions (definitions) and serves their
// custom resources.
type Controller struct {
	cfg      Config
	log      *slog.Logger
	metadata *metadataSchemas
	queue    workqueue.TypedRateLimitingInterface[string]
	synced   chan struct{} // closed once all definitions that existed at the start have been processed

	mu     sync.Mutex
	known  map[string]*entry // by name of the definition
	groups map[string]*group
	seen   int64         // revision up to which all events have been processed
	moved  chan struct{} // closed after each processed batch of events, and replaced by a new channel
}

// entry is the state of a CustomResourceDefinition. Controller.mu guards it.
type entry struct {
	record *store.Record
	group  string
	// names are the names granted to the definition. The status may not contain them yet.
	names   apiextensionsv1.CustomResourceDefinitionNames
	refused bool // true if some of its names are granted to another definition
	// served is the definition that is served, or nil if none is. While the definition is terminating,
	// served does not change.
	served      *definition
	terminating bool
}

// group has the CustomResourceDefinitions of an API group and the names that are granted to them.
type group struct {
	taken   *taken
	members map[string]*entry
}

// New returns a Controller. It starts no goroutines.
func New(cfg Config) *Controller {
	limits := workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryLast)
	return &Controller{
		cfg: cfg, log: cfg.Log.With("controller", "customresources"), metadata: &metadataSchemas{source: cfg.OpenAPI},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limits, workqueue.TypedRateLimitingQueueConfig[string]{
			Name: "customresourcedefinitions", Clock: cfg.Clock,
		}),
		synced: make(chan struct{}), known: make(map[string]*entry), groups: make(map[string]*group),
		moved: make(chan struct{}),
	}
}

// Run maintains CustomResourceDefinitions and serves their resources until ctx is done.
func (c *Controller) Run(ctx context.Context) {
	ctx = request.WithUser(ctx,
		&user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}})
	ctx = registry.WithUserAgent(ctx, "kube-apiserver/customresources")
	var wg sync.WaitGroup
	defer wg.Wait()
	for range workers {
		wg.Go(func() { c.work(ctx) })
	}
	defer c.queue.ShutDown()
	for ctx.Err() == nil {
		if err := c.follow(ctx); err != nil && ctx.Err() == nil {
			c.log.Info("Watch of custom resource definitions ended", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-c.cfg.Clock.After(watchRetry):
		}
	}
}

// WaitSynced waits until all CustomResourceDefinitions that existed at the start have been
// processed.
func (c *Controller) WaitSynced(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.synced:
		return nil
	}
}

func (c *Controller) definitions() *registry.Registry { return c.cfg.API.Registry(Definitions()) }

func (c *Controller) work(ctx context.Context) {
	for {
		name, done := c.queue.Get()
		if done {
			return
		}
		if err := c.sync(ctx, name); err != nil && ctx.Err() == nil {
			c.log.Debug("Failed to sync a custom resource definition, retrying", "name", name, "err", err)
			c.queue.AddRateLimited(name)
		} else {
			c.queue.Forget(name)
		}
		c.queue.Done(name)
	}
}

// sync updates the status of a CustomResourceDefinition. If the definition is being deleted, sync
// calls end instead.
func (c *Controller) sync(ctx context.Context, name string) error {
	c.mu.Lock()
	e := c.known[name]
	if e == nil {
		c.mu.Unlock()
		return nil
	}
	crd, err := definitionOf(e.record)
	if err != nil {
		c.mu.Unlock()
		return err
	}
	if crd.DeletionTimestamp != nil {
		c.mu.Unlock()
		return c.end(ctx, crd)
	}
	next, changed := decide(crd, c.groups[e.group].taken, now(c.cfg.Clock))
	if changed {
		c.grant(e, &next.Status.AcceptedNames)
	}
	c.mu.Unlock()
	if !changed {
		return nil
	}
	return c.write(ctx, next)
}

// grant replaces the names of kinds and resources that are granted to a CustomResourceDefinition by
// names. The caller holds the lock.
func (c *Controller) grant(e *entry, names *apiextensionsv1.CustomResourceDefinitionNames) {
	t := c.groups[e.group].taken
	t.count(&e.names, -1)
	e.names = *names.DeepCopy()
	t.count(&e.names, 1)
}

// definitionOf returns the CustomResourceDefinition in a record of the store. The caller must not
// change it.
func definitionOf(r *store.Record) (*apiextensionsv1.CustomResourceDefinition, error) {
	obj, err := r.Shared()
	if err != nil {
		return nil, err
	}
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil, fmt.Errorf("definition is stored as %T", obj)
	}
	return crd, nil
}
