// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Owner is an object that controls other objects: those that match its selector and have no other
// controlling owner.
type Owner struct {
	Object   metav1.Object
	Kind     schema.GroupVersionKind
	Selector labels.Selector
	// Finalizer is added to adopted objects and removed from released objects. It may be "".
	Finalizer string
	// GetLive reads the owner from the API server, not from the cache.
	GetLive func() (metav1.Object, error)
	// Patch sends a strategic merge patch for an object.
	Patch func(object metav1.Object, patch []byte) error
}

var errOwnerChanged = errors.New("the owner is being deleted or was replaced")

// Claim returns the candidates that the owner controls. It adopts those that match the selector and
// have no controlling owner, and releases candidates that it controls but that no longer match.
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
		case matches && o.Object.GetDeletionTimestamp() == nil && c.GetDeletionTimestamp() == nil &&
			c.GetNamespace() == o.Object.GetNamespace():
			if !checked {
				if err := o.checkOwner(); err != nil {
					return mine, err
				}
				checked = true
			}
			switch err := o.adopt(c); {
			case apierrors.IsNotFound(err): // the object was deleted, which the cache does not show yet
			case err != nil:
				errs = append(errs, err)
			default:
				mine = append(mine, c)
			}
		}
	}
	return mine, errors.Join(errs...)
}

// checkOwner reads the owner from the API server. It returns an error if the owner is being deleted
// or was replaced by another object of the same name.
func (o Owner) checkOwner() error {
	fresh, err := o.GetLive()
	if err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	if fresh.GetUID() != o.Object.GetUID() || fresh.GetDeletionTimestamp() != nil {
		return errOwnerChanged
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

// release removes the owner reference from an object. It ignores the NotFound error for an object
// that was deleted. It also ignores the error Invalid, which the API server returns if the object
// was replaced or no longer has the owner reference.
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

// patch changes the given metadata fields of an object with a strategic merge patch.
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
