// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// recheck is the time after which an object is synced again if the API server has a user of it that
// the informers' caches do not show.
const recheck = time.Minute

// finalizer is the name of a finalizer.
type finalizer string

// isOn reports whether an object has the finalizer.
func (f finalizer) isOn(o metav1.Object) bool { return slices.Contains(o.GetFinalizers(), string(f)) }

// mayChange reports whether the finalizer may have to be added to an object or removed from it: the
// object has no finalizer and is not being deleted, or it has the finalizer and is being deleted.
func (f finalizer) mayChange(o metav1.Object) bool {
	return (o.GetDeletionTimestamp() != nil) == f.isOn(o)
}

// updater is the method Update of a typed client.
type updater[T any] interface {
	Update(ctx context.Context, o T, options metav1.UpdateOptions) (T, error)
}

// change writes an object with the finalizer if the object is not being deleted, and without it
// otherwise. next is a copy of the object, which change modifies.
func change[T metav1.Object](ctx context.Context, client updater[T], f finalizer, next T) error {
	others := slices.DeleteFunc(next.GetFinalizers(), func(name string) bool { return name == string(f) })
	if next.GetDeletionTimestamp() == nil {
		others = append(others, string(f))
	}
	next.SetFinalizers(others)
	if _, err := client.Update(ctx, next, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizer: %w", err)
	}
	return nil
}

// inUse reports whether the object with the given key is used. The function cached looks for a user
// in the informers' caches, and live asks the API server. inUse calls live only if the caches show no
// user.
func inUse(queue *controller.Queue, key string, cached, live func() (bool, error)) (bool, error) {
	if used, err := cached(); err != nil || used {
		return used, err
	}
	used, err := live()
	if used {
		// If the user is deleted before the caches show it, there is no event of the deletion.
		// Therefore check the object again later.
		queue.AddAfter(key, recheck)
	}
	return used, err
}
