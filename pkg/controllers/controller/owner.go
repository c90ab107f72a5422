// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Owner is an object that controls others: those it selects and that nobody
// else controls.
type Owner struct {
	Object   metav1.Object
	Kind     schema.GroupVersionKind
	Selector labels.Selector
	// Finalizer, unless it is "", is what objects get when they are adopted, and
	// lose when they are released.
	Finalizer string
	// Fresh reads the owner from the API server, past the cache.
	Fresh func() (metav1.Object, error)
	// Patch patches an object.
	Patch func(object metav1.Object, patch []byte) error
}

var errOwnerGone = errors.New("the owner is being deleted, or is another object now")

// Claim returns those of candidates that the owner controls. It adopts what it
// selects and nobody controls, and releases what it controls and does not
// select any more.
func Claim[T metav1.Object](o Owner, candidates []T) ([]T, error) {
	var mine []T
	var errs []error
	checked := false
	for _, c := range candidates {
		ref := metav1.GetControllerOfNoCopy(c)
		matches := o.Selector.Matches(labels.Set(c.GetLabels()))
		switch {
		case ref != nil && ref.UID != o.Object.GetUID():
		case ref != nil && matches:
			mine = append(mine, c)
		case ref != nil:
			if o.Object.GetDeletionTimestamp() == nil {
				errs = append(errs, o.release(c))
			}
		case matches && o.Object.GetDeletionTimestamp() == nil && c.GetDeletionTimestamp() == nil && c.GetNamespace() == o.Object.GetNamespace():
			if !checked {
				if err := o.check(); err != nil {
					return mine, err
				}
				checked = true
			}
			switch err := o.adopt(c); {
			case apierrors.IsNotFound(err): // gone since the cache saw it
			case err != nil:
				errs = append(errs, err)
			default:
				mine = append(mine, c)
			}
		}
	}
	return mine, errors.Join(errs...)
}

// check makes sure that the owner of the cache still is, before it adopts anything.
func (o Owner) check() error {
	fresh, err := o.Fresh()
	if err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	if fresh.GetUID() != o.Object.GetUID() || fresh.GetDeletionTimestamp() != nil {
		return errOwnerGone
	}
	return nil
}

func (o Owner) adopt(c metav1.Object) error {
	ref := metav1.NewControllerRef(o.Object, o.Kind)
	metadata := map[string]any{"ownerReferences": []any{ref}, "uid": c.GetUID()}
	if o.Finalizer != "" {
		metadata["finalizers"] = []string{o.Finalizer}
	}
	return o.patch(c, metadata)
}

// release takes the owner from an object. One that is gone needs no change, and
// neither does one that the owner was taken from already, or that is another
// now: the API server calls the patch invalid.
func (o Owner) release(c metav1.Object) error {
	metadata := map[string]any{
		"ownerReferences": []any{map[string]any{"$patch": "delete", "uid": o.Object.GetUID()}}, "uid": c.GetUID(),
	}
	if o.Finalizer != "" {
		metadata["$deleteFromPrimitiveList/finalizers"] = []string{o.Finalizer}
	}
	err := o.patch(c, metadata)
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

// patch changes the metadata of an object.
func (o Owner) patch(c metav1.Object, metadata map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("owner reference: %w", err)
	}
	if err := o.Patch(c, body); err != nil {
		return fmt.Errorf("owner reference of %s: %w", c.GetName(), err)
	}
	return nil
}

// ByController is an index of objects by the UID of their controller; those of
// a namespace that have none are under Orphans(namespace).
const ByController = "controller"

// Orphans is where ByController has the objects of a namespace without controller.
func Orphans(namespace string) string { return "orphans/" + namespace }

// IndexByController adds the index to an informer, unless it is there.
func IndexByController(informer cache.SharedIndexInformer) error {
	if _, there := informer.GetIndexer().GetIndexers()[ByController]; there {
		return nil
	}
	err := informer.AddIndexers(cache.Indexers{ByController: func(obj any) ([]string, error) {
		m, ok := obj.(metav1.Object)
		if !ok {
			return nil, fmt.Errorf("%T has no metadata", obj)
		}
		if ref := metav1.GetControllerOfNoCopy(m); ref != nil {
			return []string{string(ref.UID)}, nil
		}
		return []string{Orphans(m.GetNamespace())}, nil
	}})
	if err != nil {
		return fmt.Errorf("index by controller: %w", err)
	}
	return nil
}

// Candidates are what an owner may claim: what it controls, and what nobody does.
func Candidates[T any](informer cache.SharedIndexInformer, owner metav1.Object) ([]T, error) {
	var out []T
	for _, value := range []string{string(owner.GetUID()), Orphans(owner.GetNamespace())} {
		list, err := informer.GetIndexer().ByIndex(ByController, value)
		if err != nil {
			return nil, fmt.Errorf("objects by controller: %w", err)
		}
		for _, o := range list {
			out = append(out, o.(T))
		}
	}
	return out, nil
}

// Active tells whether a pod has not ended and is not to end.
func Active(pod *v1.Pod) bool {
	return pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed && pod.DeletionTimestamp == nil
}

// Condition returns a pod's condition, or nil.
func Condition(pod *v1.Pod, t v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Ready tells whether a pod is ready.
func Ready(pod *v1.Pod) bool {
	c := Condition(pod, v1.PodReady)
	return c != nil && c.Status == v1.ConditionTrue
}
