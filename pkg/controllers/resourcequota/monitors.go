// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// patience is how long a count waits for a resource to be listed.
const patience = 10 * time.Second

var errNotListed = errors.New("not listed yet")

// monitors watch the metadata of resources. They are safe for concurrent use.
type monitors struct {
	client metadata.Interface
	gone   func(resource schema.GroupResource, namespace string)

	running sync.WaitGroup
	mu      sync.Mutex
	byName  map[schema.GroupResource]*monitor
}

type monitor struct {
	gvr    schema.GroupVersionResource
	cancel context.CancelFunc
	lister cache.GenericLister
	synced cache.InformerSynced
}

func newMonitors(client metadata.Interface, gone func(schema.GroupResource, string)) *monitors {
	return &monitors{client: client, gone: gone, byName: map[schema.GroupResource]*monitor{}}
}

// watch watches a resource until ctx ends, if it is not watched yet, and waits until it is listed.
func (m *monitors) watch(ctx context.Context, gvr schema.GroupVersionResource) error {
	m.mu.Lock()
	w := m.byName[gvr.GroupResource()]
	if w == nil || w.gvr != gvr {
		if w != nil {
			w.cancel()
		}
		var err error
		if w, err = m.start(ctx, gvr); err != nil {
			m.mu.Unlock()
			return err
		}
		m.byName[gvr.GroupResource()] = w
	}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), w.synced) {
		return fmt.Errorf("resource %s: %w", gvr.GroupResource(), errNotListed)
	}
	return nil
}

func (m *monitors) start(ctx context.Context, gvr schema.GroupVersionResource) (*monitor, error) {
	ctx, cancel := context.WithCancel(ctx)
	generic := metadatainformer.NewFilteredMetadataInformer(m.client, gvr, metav1.NamespaceAll, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, controller.Present)
	informer := generic.Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		if unseen, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = unseen.Obj
		}
		if object, err := meta.Accessor(o); err == nil {
			m.gone(gvr.GroupResource(), object.GetNamespace())
		}
	}})
	if err == nil {
		err = informer.SetTransform(onlyName)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch %s: %w", gvr.GroupResource(), err)
	}
	m.running.Go(func() { informer.RunWithContext(ctx) })
	return &monitor{gvr, cancel, generic.Lister(), informer.HasSynced}, nil
}

// onlyName keeps of an object what counting takes.
func onlyName(o any) (any, error) {
	object, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	return &metav1.PartialObjectMetadata{TypeMeta: object.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: object.Namespace, Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion,
	}}, nil
}

// lister returns what is seen of a resource.
func (m *monitors) lister(resource schema.GroupResource) (cache.GenericLister, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.byName[resource]
	if w == nil || !w.synced() {
		return nil, fmt.Errorf("resource %s: %w", resource, errNotListed)
	}
	return w.lister, nil
}

// keep ends the watches of all resources but those needed.
func (m *monitors) keep(needed map[schema.GroupResource]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for resource, w := range m.byName {
		if !needed[resource] {
			w.cancel()
			delete(m.byName, resource)
		}
	}
}

// stop waits until all watches have ended; the context they were given must be at its end.
func (m *monitors) stop() {
	m.keep(nil)
	m.running.Wait()
}
