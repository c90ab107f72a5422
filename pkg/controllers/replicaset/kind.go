// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Kind describes the kind of the sets that a Controller handles: ReplicaSets, or objects of another
// type T that can be converted to ReplicaSets.
type Kind[T any] struct {
	// Controller is the controller's name.
	Controller string
	Kind       schema.GroupVersionKind
	Informer   cache.SharedIndexInformer
	// Read converts an object to a ReplicaSet. The two may share memory, so the caller must not
	// change either. The TypeMeta of the result contains the kind for events.
	Read func(*T) *appsv1.ReplicaSet
	// Fresh reads a set from the API server, not from the cache.
	Fresh func(ctx context.Context, namespace, name string) (metav1.Object, error)
	// WriteStatus writes the status of a set, in the form that Read returns.
	WriteStatus func(context.Context, *appsv1.ReplicaSet) error
	// CountsTerminating reports whether the status of this kind has the field terminatingReplicas.
	CountsTerminating bool
}

func replicaSets(d controller.Deps) Kind[appsv1.ReplicaSet] {
	return Kind[appsv1.ReplicaSet]{
		Controller: Name, Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Informer: d.Informers.Apps().V1().ReplicaSets().Informer(),
		Read:     func(set *appsv1.ReplicaSet) *appsv1.ReplicaSet { return set },
		Fresh: func(ctx context.Context, namespace, name string) (metav1.Object, error) {
			return d.Client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		WriteStatus: func(ctx context.Context, set *appsv1.ReplicaSet) error {
			_, err := d.Client.AppsV1().ReplicaSets(set.Namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
			return err
		},
		CountsTerminating: true,
	}
}
