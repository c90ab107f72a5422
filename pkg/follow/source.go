// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Client is the part of a typed or dynamic client that lists and watches one resource.
type Client[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Source returns the source for a Cache. The options restrict which objects of client it lists and
// watches.
func Source[L runtime.Object](client Client[L], options ...func(*metav1.ListOptions)) cache.ListerWatcher {
	apply := func(o metav1.ListOptions) metav1.ListOptions {
		for _, option := range options {
			option(&o)
		}
		return o
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, apply(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, apply(o))
		},
	}
}

// Named restricts a Source to the object with the given name. The Node authorizer allows a kubelet
// to watch a Secret or ConfigMap only in this way.
func Named(name string) func(*metav1.ListOptions) {
	return Fields(fields.OneTermEqualSelector(metav1.ObjectNameField, name).String())
}

// Fields restricts a Source to objects that a field selector selects.
func Fields(selector string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) { o.FieldSelector = selector }
}

// Labels restricts a Source to objects that a label selector selects.
func Labels(selector string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) { o.LabelSelector = selector }
}

// Latest makes lists return the latest state of the API server. It matters only if the API server
// cannot stream lists. Without Latest, a list may then return an older state, without objects that
// this process or its predecessor has just written.
func Latest(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
}

// NewInformers returns shared informers, which drop managed fields. Options can replace the
// transform that drops these. If resync is not 0, the informers call their handlers for all objects
// at this interval.
func NewInformers(
	client kubernetes.Interface, resync time.Duration, options ...informers.SharedInformerOption,
) informers.SharedInformerFactory {
	options = append([]informers.SharedInformerOption{informers.WithTransform(WithoutManagedFields)}, options...)
	return informers.NewSharedInformerFactoryWithOptions(client, resync, options...)
}

// WithoutManagedFields is a transform for informers that drops managed fields. These are large, and
// no program of this project reads them from a cache.
func WithoutManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}
