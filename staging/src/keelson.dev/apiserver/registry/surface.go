// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

// Registry reads and writes the objects of one row.
type Registry struct {
	row *resource.Row
	cfg Config
}

// New returns the registry of a row that is not ephemeral.
func New(row *resource.Row, cfg Config) (*Registry, error) { panic("being written") }

// Row returns the row the registry is of.
func (r *Registry) Row() *resource.Row { return r.row }

// Store returns the store under the registry.
func (r *Registry) Store() store.Interface { panic("being written") }

// Create stores obj, a new object in the storage version's type, which it may
// modify. The record of a dry run has no revision.
func (r *Registry) Create(ctx context.Context, namespace string, obj resource.Object, options metav1.CreateOptions) (*store.Record, error) {
	panic("being written")
}

// Get returns one object; an empty resourceVersion reads consistently.
func (r *Registry) Get(ctx context.Context, namespace, name, resourceVersion string) (*store.Record, error) {
	panic("being written")
}

// List returns the objects of a namespace (all namespaces when empty).
func (r *Registry) List(ctx context.Context, namespace string, options metav1.ListOptions) (*store.Page, error) {
	panic("being written")
}

// Watch follows the objects of a namespace (all namespaces when empty).
func (r *Registry) Watch(ctx context.Context, namespace string, options metav1.ListOptions) (store.Watcher, error) {
	panic("being written")
}

// Update applies u.Transform and stores the result. created is true when the
// object was absent before. Updating away the last finalizer of an object that
// is being deleted removes it; its last state is returned.
func (r *Registry) Update(ctx context.Context, u Update) (rec *store.Record, created bool, err error) {
	panic("being written")
}

// Patch applies p and stores the result.
func (r *Registry) Patch(ctx context.Context, p Patch) (rec *store.Record, created bool, err error) {
	panic("being written")
}

// Delete removes an object, or marks it as being deleted where finalizers or a
// grace period keep it. gone says which; the record is the object's last or
// marked state.
func (r *Registry) Delete(ctx context.Context, namespace, name string, options metav1.DeleteOptions) (rec *store.Record, gone bool, err error) {
	panic("being written")
}

// DeleteCollection deletes every object that list selects, and returns them.
func (r *Registry) DeleteCollection(ctx context.Context, namespace string, options metav1.DeleteOptions, list metav1.ListOptions) ([]*store.Record, error) {
	panic("being written")
}

// Codec returns how objects of row are stored: row.Codec, or the scheme's
// protobuf envelope.
func Codec(row *resource.Row, scheme *runtime.Scheme) store.Codec { panic("being written") }

// Attrs returns the function that extracts what selection needs from an object of row.
func Attrs(row *resource.Row) func(store.Object) store.Attrs { panic("being written") }
