// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"keelson.dev/apiserver/store"
)

// unsafeDelete is the verb that a user needs in addition to "delete" to remove a corrupt object.
const unsafeDelete = "unsafe-delete-ignore-read-errors"

// DeleteCorrupt removes an object that cannot be read from the store, for a request with
// ignoreStoreReadErrorWithClusterBreakingPotential. It runs neither admission nor hooks, and knows
// no finalizers. Objects that can be read are not removed.
func (r *Registry) DeleteCorrupt(ctx context.Context, version, namespace, name string,
	options metav1.DeleteOptions) error {
	audit.AddAuditAnnotation(ctx, "apiserver.k8s.io/unsafe-delete-ignore-read-error", "")
	if r.row.NamespaceItself {
		return apierrors.NewInternalError(errors.New(
			"no unsafe deleter provided, can not honor ignoreStoreReadErrorWithClusterBreakingPotential"))
	}
	if r.cfg.Authorizer == nil {
		return apierrors.NewInternalError(errors.New("no authorizer provided, unable to authorize unsafe delete"))
	}
	if err := r.authorizeUnsafeDelete(ctx, version, namespace, name); err != nil {
		return apierrors.NewForbidden(r.row.GroupResource(), name, err)
	}
	key := r.key(namespace, name)
	err := r.store.DeleteCorrupt(ctx, key, isDryRun(options.DryRun))
	if errors.Is(err, store.ErrNotCorrupt) {
		return apierrors.NewConflict(r.row.GroupResource(), name, fmt.Errorf(
			"StorageError: invalid object, Code: 4, Key: %s/%s/%s, ResourceVersion: 0, AdditionalErrorMsg: %w",
			r.cfg.KeyRoot, r.row.StoragePrefix, key, err))
	}
	return err
}

// authorizeUnsafeDelete returns an error if the user may not remove the object although it is corrupt.
func (r *Registry) authorizeUnsafeDelete(ctx context.Context, version, namespace, name string) error {
	user, _ := request.UserFrom(ctx)
	decision, reason, err := r.cfg.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: user, Verb: unsafeDelete, ResourceRequest: true, APIGroup: r.row.Group, APIVersion: version,
		Resource: r.row.Resource, Namespace: namespace, Name: name,
	})
	if err != nil {
		return fmt.Errorf("error while checking permission for %q, %w", unsafeDelete, err)
	}
	if decision != authorizer.DecisionAllow {
		return fmt.Errorf("not permitted to do %q, reason: %s", unsafeDelete, reason)
	}
	return nil
}
