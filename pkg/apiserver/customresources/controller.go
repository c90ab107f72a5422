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
	workers    = 16 // statuses written at a time
	retryFirst = 5 * time.Millisecond
	retryLast  = time.Minute
	watchRetry = time.Second
	// arriveWait is how long a request for a resource that has just been
	// established somewhere waits for it to arrive here.
	arriveWait = 2 * time.Second
)

// Definitions is the resource that definitions are objects of.
func Definitions() schema.GroupResource {
	return schema.GroupResource{Group: apiextensionsv1.GroupName, Resource: "customresourcedefinitions"}
}

// Config is what a Controller is made of.
type Config struct {
	// API serves the definitions, and what they define.
	API *rest.Server
	// Own are the group versions that the server has itself: no definition adds to them.
	Own []schema.GroupVersion
	// Scheme and Store are those of API's registries.
	Scheme *runtime.Scheme
	Store  func(*resource.Row) store.Interface
	// Converters make what converts objects between versions.
	Converters interface {
		NewConverter(crd *apiextensionsv1.CustomResourceDefinition) (safe, unsafe runtime.ObjectConvertor, err error)
	}
	// OpenAPI has the definition of ObjectMeta.
	OpenAPI rest.OpenAPI
	Clock   clock.Clock
	Log     *slog.Logger
}

// Controller keeps definitions and what is served by them.
type Controller struct {
	cfg      Config
	log      *slog.Logger
	metadata *metadataSchemas
	queue    workqueue.TypedRateLimitingInterface[string]
	synced   chan struct{} // closed once all definitions have been seen

	mu     sync.Mutex
	known  map[string]*entry // by the definition's name
	groups map[string]*group
	seen   int64         // the revision that everything is known up to
	moved  chan struct{} // closed, and replaced, with each batch of events
}

// entry is what is known of a definition. Controller.mu guards it.
type entry struct {
	record *store.Record
	group  string
	// names are what it has been granted, also if that is not written yet.
	names   apiextensionsv1.CustomResourceDefinitionNames
	refused bool // it waits for names
	// served is what it is served by; nil while it is not. Nothing new is made
	// of it while it is terminating.
	served      *definition
	terminating bool
}

// group is what the definitions of a group share.
type group struct {
	taken   *taken
	members map[string]*entry
}

// New returns a Controller, which does nothing until it runs.
func New(cfg Config) *Controller {
	limits := workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryLast)
	return &Controller{
		cfg: cfg, log: cfg.Log.With("controller", "customresources"), metadata: &metadataSchemas{source: cfg.OpenAPI},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limits, workqueue.TypedRateLimitingQueueConfig[string]{
			Name: "customresourcedefinitions", Clock: cfg.Clock,
		}),
		synced: make(chan struct{}), known: make(map[string]*entry), groups: make(map[string]*group), moved: make(chan struct{}),
	}
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) {
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}})
	ctx = registry.WithUserAgent(ctx, "kube-apiserver/customresources")
	var wg sync.WaitGroup
	defer wg.Wait()
	for range workers {
		wg.Go(func() { c.work(ctx) })
	}
	defer c.queue.ShutDown()
	for ctx.Err() == nil {
		if err := c.follow(ctx); err != nil && ctx.Err() == nil {
			c.log.Info("Watch of definitions ended", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-c.cfg.Clock.After(watchRetry):
		}
	}
}

// WaitSynced waits until what is defined is served.
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
			c.log.Debug("Definition to be looked at again", "name", name, "err", err)
			c.queue.AddRateLimited(name)
		} else {
			c.queue.Forget(name)
		}
		c.queue.Done(name)
	}
}

// sync brings the status of one definition to what it is to be, or the
// definition to its end.
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

// grant notes which names a definition has. The caller holds the lock.
func (c *Controller) grant(e *entry, names *apiextensionsv1.CustomResourceDefinitionNames) {
	t := c.groups[e.group].taken
	t.count(&e.names, -1)
	e.names = *names.DeepCopy()
	t.count(&e.names, 1)
}

// definitionOf is the definition of a record, for reading only.
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
