// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/follow"
)

// patience is how long after the start of a watch syncs wait until its objects are listed.
const patience = 10 * time.Second

var errNotListed = errors.New("not listed yet")

// monitors are the watches of the metadata of resources. They are safe for concurrent use.
type monitors struct {
	client  metadata.Interface
	changed func(resource schema.GroupResource, old, obj apiObject)
	// ended is called for a resource when its watch has ended and its last event was handled.
	ended func(resource schema.GroupResource)

	running sync.WaitGroup
	mu      sync.Mutex
	byName  map[schema.GroupResource]*monitor
}

type monitor struct {
	gvr schema.GroupVersionResource
	// end cancels the watch and returns when its last event was handled.
	end    func()
	synced cache.InformerSynced
	// waited is closed when the watch has run for the time patience, or has ended.
	waited <-chan struct{}
}

func newMonitors(client metadata.Interface, changed func(resource schema.GroupResource, old, obj apiObject),
	ended func(schema.GroupResource)) *monitors {
	return &monitors{client: client, changed: changed, ended: ended, byName: map[schema.GroupResource]*monitor{}}
}

// watch starts a watch of a resource, which runs until ctx ends, unless there is one already. It
// waits until the objects are listed, or returns an error if that takes longer than patience.
func (m *monitors) watch(ctx context.Context, gvr schema.GroupVersionResource) error {
	m.mu.Lock()
	w := m.byName[gvr.GroupResource()]
	if w == nil || w.gvr != gvr {
		if w != nil {
			w.end()
		}
		var err error
		if w, err = m.start(ctx, gvr); err != nil {
			m.mu.Unlock()
			return err
		}
		m.byName[gvr.GroupResource()] = w
	}
	m.mu.Unlock()
	if w.synced() {
		return nil
	}
	if !cache.WaitForCacheSync(w.waited, w.synced) {
		return fmt.Errorf("resource %s: %w", gvr.GroupResource(), errNotListed)
	}
	return nil
}

func (m *monitors) start(ctx context.Context, gvr schema.GroupVersionResource) (*monitor, error) {
	ctx, cancel := context.WithCancel(ctx)
	generic := metadatainformer.NewFilteredMetadataInformer(m.client, gvr, metav1.NamespaceAll, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, follow.Latest)
	informer := generic.Informer()
	registration, err := informer.AddEventHandler(
		handler(func(old, obj apiObject) { m.changed(gvr.GroupResource(), old, obj) }))
	if err == nil {
		err = informer.SetTransform(onlyName)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch %s: %w", gvr.GroupResource(), err)
	}
	waiting, giveUp := context.WithTimeout(ctx, patience)
	done := make(chan struct{})
	m.running.Go(func() {
		defer close(done)
		informer.RunWithContext(ctx)
	})
	end := func() {
		giveUp()
		cancel()
		<-done
		m.ended(gvr.GroupResource())
	}
	return &monitor{gvr, end, registration.HasSynced, waiting.Done()}, nil
}

// handler returns an event handler that calls changed for each event. old is nil if the object was
// added, obj is nil if it was deleted.
func handler(changed func(old, obj apiObject)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(nil, o.(apiObject)) },
		UpdateFunc: func(old, o any) { changed(old.(apiObject), o.(apiObject)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if object, ok := o.(apiObject); ok {
				changed(object, nil)
			}
		},
	}
}

// onlyName returns a copy of an object's metadata with only the fields that counting needs.
func onlyName(o any) (any, error) {
	object, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	return &metav1.PartialObjectMetadata{TypeMeta: object.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: object.Namespace, Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion,
		CreationTimestamp: object.CreationTimestamp,
	}}, nil
}

// keep ends the watches of all resources that are not in needed.
func (m *monitors) keep(needed map[schema.GroupResource]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for resource, w := range m.byName {
		if !needed[resource] {
			w.end()
			delete(m.byName, resource)
		}
	}
}

// stop waits until all watches have ended. The context with which they were started must have
// ended.
func (m *monitors) stop() {
	m.keep(nil)
	m.running.Wait()
}
