// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history stores the revisions of StatefulSets and DaemonSets as ControllerRevisions. There
// is one revision for each pod template that was used. Its name contains a hash of the template,
// and its number gives the order in which templates were last used.
//
// The functions in revision.go compute the content, names and order of revisions without I/O. Store
// reads and writes revisions. The package does not record which revision a pod has; the callers do.
package history

import (
	"bytes"
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Store reads revisions from a cache and writes them to the API server. It is safe for concurrent
// use.
type Store struct {
	client kubernetes.Interface
	cache  cache.SharedIndexInformer
}

// NewStore returns a store that reads from the informer of ControllerRevisions.
func NewStore(client kubernetes.Interface, informer cache.SharedIndexInformer) (*Store, error) {
	return &Store{client, informer}, controller.IndexByController(informer)
}

// Candidates returns the revisions to pass to Claim: those of the owner, and those in its namespace
// without an owner.
func (s *Store) Candidates(owner metav1.Object) ([]*appsv1.ControllerRevision, error) {
	return controller.Candidates[*appsv1.ControllerRevision](s.cache, owner)
}

// Claim returns the owner's revisions, with the oldest first. It adopts candidates that match the
// owner's selector and have no owner, and releases those that no longer match.
func (s *Store) Claim(ctx context.Context, o controller.Owner, candidates []*appsv1.ControllerRevision) (
	[]*appsv1.ControllerRevision, error) {
	o.Patch = func(r metav1.Object, patch []byte) error {
		_, err := s.client.AppsV1().ControllerRevisions(r.GetNamespace()).Patch(ctx, r.GetName(),
			types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	mine, err := controller.Claim(o, candidates)
	if err != nil {
		return nil, fmt.Errorf("revisions: %w", err)
	}
	Sort(mine)
	return mine, nil
}

// Create creates a revision. If a revision of this name exists already, Create returns the existing
// one; collided reports whether it has different data.
func (s *Store) Create(ctx context.Context, r *appsv1.ControllerRevision) (got *appsv1.ControllerRevision,
	collided bool, err error) {
	revisions := s.client.AppsV1().ControllerRevisions(r.Namespace)
	got, err = revisions.Create(ctx, r, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return nil, false, fmt.Errorf("create revision: %w", err)
		}
		return got, false, nil
	}
	got, err = revisions.Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return nil, false, fmt.Errorf("revision of the same name: %w", err)
	}
	return got, !bytes.Equal(got.Data.Raw, r.Data.Raw), nil
}

// Renumber changes the number of a ControllerRevision.
func (s *Store) Renumber(ctx context.Context, r *appsv1.ControllerRevision,
	number int64) (*appsv1.ControllerRevision, error) {
	if r.Revision == number {
		return r, nil
	}
	r = r.DeepCopy()
	r.Revision = number
	got, err := s.client.AppsV1().ControllerRevisions(r.Namespace).Update(ctx, r, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("number of revision: %w", err)
	}
	return got, nil
}

// Delete deletes ControllerRevisions.
func (s *Store) Delete(ctx context.Context, revisions []*appsv1.ControllerRevision) error {
	for _, r := range revisions {
		err := s.client.AppsV1().ControllerRevisions(r.Namespace).Delete(ctx, r.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete revision: %w", err)
		}
	}
	return nil
}
