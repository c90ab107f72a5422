// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storageversion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

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
	// page is the maximum number of objects that one list request returns. atOnce is the maximum
	// number of objects that are written in parallel.
	page   = 500
	atOnce = 8
)

// needed returns the verbs that a resource must support for a migration.
func needed() []string { return []string{"update", "patch", "list"} }

// target is a resource to migrate. migratable reports whether it supports all needed verbs.
type target struct {
	gvr        schema.GroupVersionResource
	gvk        schema.GroupVersionKind
	migratable bool
}

// find looks up a resource with discovery. It returns nil if the resource is not served.
func (c *migrator) find(what metav1.GroupResource) (*target, error) {
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

// object identifies an object in the version in which it was listed.
type object struct{ namespace, name, version string }

// objects has the objects that a migration has to rewrite.
type objects struct {
	old []object
	// all is the number of all objects of the resource.
	all int
	// written is the number of objects in old that have been rewritten.
	written atomic.Int64
}

// left returns the number of objects that have not been rewritten yet.
func (o *objects) left() int { return len(o.old) - int(o.written.Load()) }

// objects lists the objects of a resource. Those that were last written at version or before are old.
func (c *migrator) objects(ctx context.Context, what *target, version string) (*objects, error) {
	out := &objects{}
	for more := ""; ; {
		list, err := c.Metadata.Resource(what.gvr).List(ctx, metav1.ListOptions{Limit: page, Continue: more})
		if apierrors.IsResourceExpired(err) && more != "" {
			out, more = &objects{}, "" // list from the beginning again
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			newer, err := resourceversion.CompareResourceVersion(o.ResourceVersion, version)
			if err != nil {
				return nil, refusal{err}
			}
			if out.all++; newer <= 0 {
				out.old = append(out.old, object{o.Namespace, o.Name, o.ResourceVersion})
			}
		}
		if more = list.Continue; more == "" {
			return out, nil
		}
	}
}

// migrate rewrites the old objects. refused is an error that makes a retry pointless; err is any other
// error.
func (c *migrator) migrate(ctx context.Context, what *target, objects *objects) (refused, err error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, o := range objects.old {
		g.Go(func() error {
			err := c.rewrite(ctx, what, o)
			if err == nil {
				objects.written.Add(1)
			}
			return err
		})
	}
	err = g.Wait()
	if r := (refusal{}); errors.As(err, &r) {
		return r.error, nil
	}
	return nil, err
}

// refusal wraps an error that is caused by an object, so that a retry would fail in the same way.
type refusal struct{ error }

// rewrite makes the API server store an object again. Because of the resource version in the
// request, it does not overwrite a newer version.
//
// After a Conflict error it does not assume that another client wrote the object, because the error
// may come from a proxy in front of the server. The migration is retried, and its next list shows
// whether the object was written.
func (c *migrator) rewrite(ctx context.Context, what *target, o object) error {
	version, kind := what.gvk.ToAPIVersionAndKind()
	body, err := json.Marshal(map[string]any{
		"apiVersion": version, "kind": kind, "metadata": map[string]any{"resourceVersion": o.version},
	})
	if err != nil {
		return err
	}
	_, err = c.Metadata.Resource(what.gvr).Namespace(o.namespace).Patch(ctx, o.name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: MigratorName})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
		return nil
	case isRejected(err):
		return refusal{err}
	}
	return fmt.Errorf("write %s: %w", o.name, err)
}

// isRejected reports whether an error means that the server rejects the request itself, so that a
// retry does not help.
func isRejected(err error) bool {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return false
	}
	code := s.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusConflict &&
		code != http.StatusTooManyRequests && code != http.StatusRequestTimeout && code != http.StatusUnauthorized
}
