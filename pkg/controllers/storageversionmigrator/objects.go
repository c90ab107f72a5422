// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storageversionmigrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

const (
	// page is the maximum number of objects in the response to a list request, and atOnce the
	// number of parallel writes.
	page   = 500
	atOnce = 8
)

// needed are the verbs that a resource needs for a migration.
func needed() []string { return []string{"update", "patch", "list"} }

// target is a resource whose objects are migrated.
type target struct {
	gvr        schema.GroupVersionResource
	gvk        schema.GroupVersionKind
	migratable bool
}

// find returns a resource, or nil if it does not exist.
func (c *Controller) find(what metav1.GroupResource) (*target, error) {
	gvr, err := c.Mapper.ResourceFor(schema.GroupVersionResource{Group: what.Group, Resource: what.Resource})
	if meta.IsNoMatchError(err) || err == nil && (gvr.Group != what.Group || gvr.Resource != what.Resource) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := c.Discovery.ServerResourcesForGroupVersion(gvr.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, r := range list.APIResources {
		if r.Name == gvr.Resource {
			lacks := func(verb string) bool { return !slices.Contains(r.Verbs, verb) }
			return &target{gvr: gvr, gvk: gvr.GroupVersion().WithKind(r.Kind),
				migratable: !slices.ContainsFunc(needed(), lacks)}, nil
		}
	}
	return nil, nil
}

// migrate rewrites all objects that were last written at or before a resource version. refused is
// an error that a retry will not solve.
func (c *Controller) migrate(ctx context.Context, what *target, version string) (refused, err error) {
	for more := ""; ; {
		list, err := c.Metadata.Resource(what.gvr).List(ctx, metav1.ListOptions{Limit: page, Continue: more})
		if apierrors.IsResourceExpired(err) && more != "" {
			more = "" // the list begins again; rewritten objects are newer than version and are skipped
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(atOnce)
		for i := range list.Items {
			o := &list.Items[i]
			newer, err := resourceversion.CompareResourceVersion(o.ResourceVersion, version)
			if err != nil {
				return err, g.Wait()
			}
			if newer <= 0 {
				g.Go(func() error { return c.rewrite(ctx, what, o) })
			}
		}
		if err := g.Wait(); err != nil {
			if r := (refusal{}); errors.As(err, &r) {
				return r.error, nil
			}
			return nil, err
		}
		if more = list.Continue; more == "" {
			return nil, nil
		}
	}
}

// refusal is an error that is caused by the object, so that it would occur again.
type refusal struct{ error }

// rewrite makes the API server store an object again. The UID and resource version ensure that it
// does not recreate a deleted object or overwrite a newer one. A conflict is handled like other
// errors and not as proof that the object was written, because the error may come from a component
// in front of the server. The next list shows whether the object was written.
func (c *Controller) rewrite(ctx context.Context, what *target, o *metav1.PartialObjectMetadata) error {
	version, kind := what.gvk.ToAPIVersionAndKind()
	body, err := json.Marshal(map[string]any{
		"apiVersion": version, "kind": kind, "metadata": map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion},
	})
	if err != nil {
		return err
	}
	_, err = c.Metadata.Resource(what.gvr).Namespace(o.Namespace).Patch(ctx, o.Name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: Name})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
		return nil
	case isRejected(err):
		return refusal{err}
	}
	return fmt.Errorf("write %s: %w", o.Name, err)
}

// isRejected reports whether an error rejects the call itself, so that a retry does not help.
func isRejected(err error) bool {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return false
	}
	code := s.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusConflict &&
		code != http.StatusTooManyRequests && code != http.StatusRequestTimeout && code != http.StatusUnauthorized
}
