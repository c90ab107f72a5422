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

// kind describes the kind of the sets that a Controller handles: ReplicaSets, or objects of another
// type T that can be converted to ReplicaSets.
type kind[T any] struct {
	// controller is the controller's name.
	controller string
	gvk        schema.GroupVersionKind
	informer   cache.SharedIndexInformer
	// read converts an object to a ReplicaSet. The two may share memory, so the caller must not
	// change either. The TypeMeta of the result contains the kind for events.
	read func(*T) *appsv1.ReplicaSet
	// live reads a set from the API server, not from the cache.
	live func(ctx context.Context, namespace, name string) (metav1.Object, error)
	// writeStatus writes the status of a set, in the form that read returns.
	writeStatus func(context.Context, *appsv1.ReplicaSet) error
	// countsTerminating reports whether the status of this kind has the field terminatingReplicas.
	countsTerminating bool
}

func replicaSets(d controller.Deps) kind[appsv1.ReplicaSet] {
	return kind[appsv1.ReplicaSet]{
		controller: Name, gvk: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		informer: d.Informers.Apps().V1().ReplicaSets().Informer(),
		read:     func(set *appsv1.ReplicaSet) *appsv1.ReplicaSet { return set },
		live: func(ctx context.Context, namespace, name string) (metav1.Object, error) {
			return d.Client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		writeStatus: func(ctx context.Context, set *appsv1.ReplicaSet) error {
			_, err := d.Client.AppsV1().ReplicaSets(set.Namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
			return err
		},
		countsTerminating: true,
	}
}
