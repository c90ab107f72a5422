// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Key returns an object's key: namespace/name, or the name of a cluster-scoped object.
func Key(obj any) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(fmt.Sprintf("controller: %T has no metadata", obj)) // only a programming error leads here
	}
	if m.GetNamespace() == "" {
		return m.GetName()
	}
	return m.GetNamespace() + "/" + m.GetName()
}

// Keys returns the keys of objects.
func Keys[T metav1.Object](objs []T) []string {
	keys := make([]string, 0, len(objs))
	for _, o := range objs {
		keys = append(keys, Key(o))
	}
	return keys
}

// SplitKey returns the namespace and the name in a key.
func SplitKey(key string) (namespace, name string) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		panic("controller: key " + key) // only a programming error leads here
	}
	return namespace, name
}

// OnChange makes an informer call changed for each event. old is nil when an object was added,
// obj is nil when it was deleted.
func OnChange[T any](informer cache.SharedIndexInformer, changed func(old, obj *T)) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(nil, o.(*T)) },
		UpdateFunc: func(old, o any) { changed(old.(*T), o.(*T)) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			if t, ok := o.(*T); ok {
				changed(t, nil)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return nil
}

// OnlyStatusChanged reports whether an update changed neither the spec nor the deletion timestamp.
// The controllers skip such updates, because most of them are the controllers' own writes of the
// status.
func OnlyStatusChanged(old, obj metav1.Object) bool {
	return old.GetUID() == obj.GetUID() && old.GetGeneration() == obj.GetGeneration() &&
		old.GetDeletionTimestamp().Equal(obj.GetDeletionTimestamp())
}

// Latest returns obj, or old if obj is nil because the object was deleted. The arguments are those
// of an OnChange handler.
func Latest[T any](old, obj *T) *T {
	if obj != nil {
		return obj
	}
	return old
}
