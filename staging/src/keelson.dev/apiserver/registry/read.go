// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

// Registry reads and writes the objects of one resource.
type Registry struct {
	row     *resource.Row
	cfg     Config
	store   store.Interface
	codec   store.Codec
	attrs   func(store.Object) store.Attrs
	convert *convertor
	managed map[managedKey]*manager
	dynamic bool // the resource's objects have no Go type
	raw     bool // objects may contain values without a type; see raw.go
}

// New returns the registry of the resource that row, a row of the kind table, declares. The objects
// of the resource must be stored.
func New(row *resource.Row, cfg Config) (*Registry, error) {
	cfg.KeyRoot = cmp.Or(cfg.KeyRoot, "/registry")
	r := &Registry{
		row: row, cfg: cfg, store: cfg.Store(row),
		codec: Codec(row), attrs: Attrs(row),
		convert: newConvertor(row, cfg.Scheme),
	}
	r.dynamic = r.convert.dynamic
	r.raw = holdsRaw(reflect.TypeOf(row.New()), make(map[reflect.Type]bool))
	if err := r.makeManagers(); err != nil {
		return nil, fmt.Errorf("field managers of %s: %w", row.GroupResource(), err)
	}
	return r, nil
}

// Row returns the row of the kind table for the registry's resource.
func (r *Registry) Row() *resource.Row { return r.row }

// KeyRoot returns the beginning of all keys in the store.
func (r *Registry) KeyRoot() string { return r.cfg.KeyRoot }

// Store returns the registry's store.
func (r *Registry) Store() store.Interface { return r.store }

// Codec returns the codec for stored objects.
func (r *Registry) Codec() store.Codec { return r.codec }

// key returns an object's key in the store.
func (r *Registry) key(namespace, name string) string {
	if r.row.Namespaced {
		return namespace + "/" + name
	}
	return name
}

// Get returns one object. An empty resourceVersion returns the latest state.
func (r *Registry) Get(ctx context.Context, namespace, name, resourceVersion string) (*store.Record, error) {
	return r.store.Get(ctx, r.key(namespace, name), resourceVersion)
}

// List returns the objects of a namespace. An empty namespace means all of them.
func (r *Registry) List(ctx context.Context, namespace string, options metav1.ListOptions) (*store.Page, error) {
	predicate, err := r.predicate(namespace, &options)
	if err != nil {
		return nil, err
	}
	match := options.ResourceVersionMatch
	if match == "" && options.Continue == "" && options.ResourceVersion != "" && r.single(predicate) {
		// Without resourceVersionMatch, a list with a limit normally reads exactly the requested
		// revision. A list that selects a single object may also read a later one.
		match = metav1.ResourceVersionMatchNotOlderThan
	}
	return r.store.List(ctx, store.ListOptions{
		Predicate: predicate, ResourceVersion: options.ResourceVersion, Match: match,
		Limit: options.Limit, Continue: options.Continue,
	})
}

// single reports whether a predicate can select at most one object.
func (r *Registry) single(p store.Predicate) bool {
	if p.Name == "" || !r.row.Namespaced || p.Namespace != "" {
		return p.Name != ""
	}
	_, ok := p.Fields.RequiresExactMatch("metadata.namespace")
	return ok
}

// Watch watches the objects of a namespace. An empty namespace means all of them. The caller must
// end the watch after timeout; 0 means that there is no timeout.
func (r *Registry) Watch(ctx context.Context, namespace string, options metav1.ListOptions,
	timeout time.Duration) (store.Watcher, error) {
	predicate, err := r.predicate(namespace, &options)
	if err != nil {
		return nil, err
	}
	return r.store.Watch(ctx, store.WatchOptions{
		Predicate: predicate, ResourceVersion: options.ResourceVersion, Match: options.ResourceVersionMatch,
		AllowBookmarks: options.AllowWatchBookmarks, SendInitialEvents: options.SendInitialEvents, Timeout: timeout,
	})
}

// predicate parses the selectors in options and returns them as a store.Predicate.
func (r *Registry) predicate(namespace string, options *metav1.ListOptions) (store.Predicate, error) {
	p := store.Predicate{}
	if r.row.Namespaced {
		p.Namespace = namespace
	}
	if options.LabelSelector != "" {
		selector, err := labels.Parse(options.LabelSelector)
		if err != nil {
			return p, apierrors.NewBadRequest(err.Error())
		}
		if !selector.Empty() {
			p.Labels = selector
		}
	}
	if options.FieldSelector == "" {
		return p, nil
	}
	selector, err := fields.ParseSelector(options.FieldSelector)
	if err != nil {
		return p, apierrors.NewBadRequest(err.Error())
	}
	selector, err = selector.Transform(r.convert.fieldLabel)
	if err != nil {
		return p, apierrors.NewBadRequest(err.Error())
	}
	if !selector.Empty() {
		p.Fields = selector
		if name, ok := selector.RequiresExactMatch("metadata.name"); ok {
			p.Name = name
		}
	}
	return p, nil
}
