// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// kept is what is kept of an object of the API.
type kept interface {
	comparable
	Key() types.NamespacedName
}

// follower is the store of a reflector of the objects A, that keeps nothing itself: what
// the reflector tells goes on as K, which is small.
type follower[A any, K kept] struct {
	keep   func(*A) K // its zero value: nothing of this object
	put    func(types.NamespacedName, K)
	names  func() []types.NamespacedName // of those that have been put
	listed chan struct{}                 // closed after the first list
	once   sync.Once
}

func newFollower[A any, K kept](keep func(*A) K, put func(types.NamespacedName, K), names func() []types.NamespacedName) *follower[A, K] {
	return &follower[A, K]{keep: keep, put: put, names: names, listed: make(chan struct{})}
}

// convert returns what is kept of an object, which may have been converted already.
func (f *follower[A, K]) convert(obj any) (K, error) {
	switch o := obj.(type) {
	case K:
		return o, nil
	case *A:
		return f.keep(o), nil
	}
	var none K
	return none, fmt.Errorf("unexpected %T", obj)
}

// Transformer has a reflector keep no more than that while it lists.
func (f *follower[A, K]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return f.convert(obj) }
}

// Add is for cache.ReflectorStore, as are the others.
func (f *follower[A, K]) Add(obj any) error { return f.Update(obj) }

// Update takes over an object.
func (f *follower[A, K]) Update(obj any) error {
	k, err := f.convert(obj)
	if err != nil {
		return err
	}
	return f.tell(obj, k)
}

// Delete drops an object.
func (f *follower[A, K]) Delete(obj any) error {
	var none K
	return f.tell(obj, none)
}

func (f *follower[A, K]) tell(obj any, k K) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("object without metadata: %w", err)
	}
	f.put(types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}, k)
	return nil
}

// Replace takes over a list, and drops what is not in it.
func (f *follower[A, K]) Replace(list []any, _ string) error {
	var none K
	gone := map[types.NamespacedName]bool{}
	for _, name := range f.names() {
		gone[name] = true
	}
	for _, obj := range list {
		k, err := f.convert(obj)
		if err != nil {
			return err
		}
		if k != none {
			delete(gone, k.Key())
			f.put(k.Key(), k)
		}
	}
	for name := range gone {
		f.put(name, none)
	}
	f.once.Do(func() { close(f.listed) })
	return nil
}

// Resync does nothing: what is dirty stays so until it is done.
func (f *follower[A, K]) Resync() error { return nil }
