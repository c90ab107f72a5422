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

// Kind is a kind of set: ReplicaSets, or objects of type T that read as such.
type Kind[T any] struct {
	// Controller is the controller's name.
	Controller string
	Kind       schema.GroupVersionKind
	Informer   cache.SharedIndexInformer
	// Read shows an object as a ReplicaSet. The two may share what they are made
	// of: neither is changed. Events name the kind that the TypeMeta says.
	Read func(*T) *appsv1.ReplicaSet
	// Fresh reads an object from the API server, past the cache.
	Fresh func(ctx context.Context, namespace, name string) (metav1.Object, error)
	// WriteStatus writes the status of what was read as a ReplicaSet.
	WriteStatus func(context.Context, *appsv1.ReplicaSet) error
	// CountsTerminating tells whether the status has a count of terminating pods.
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
