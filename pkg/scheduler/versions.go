// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"reflect"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// versions are numbers that change, one for each namespace.
type versions struct {
	mu sync.Mutex
	at map[string]uint64
}

func (v *versions) of(namespace string) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.at[namespace]
}

func (v *versions) bump(namespace string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.at == nil {
		v.at = map[string]uint64{}
	}
	v.at[namespace]++
}

// selectorOf returns what a Service or controller selects.
func selectorOf(obj any) any {
	switch o := obj.(type) {
	case *v1.Service:
		return o.Spec.Selector
	case *v1.ReplicationController:
		return o.Spec.Selector
	case *appsv1.ReplicaSet:
		return o.Spec.Selector
	case *appsv1.StatefulSet:
		return o.Spec.Selector
	}
	return nil
}

// selectorHandler notes in which namespaces selectors change.
func selectorHandler(v *versions) cache.ResourceEventHandler {
	bump := func(obj any) {
		if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = t.Obj
		}
		if m, err := meta.Accessor(obj); err == nil {
			v.bump(m.GetNamespace())
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: bump,
		UpdateFunc: func(old, obj any) {
			if !reflect.DeepEqual(selectorOf(old), selectorOf(obj)) {
				bump(obj)
			}
		},
		DeleteFunc: bump,
	}
}
