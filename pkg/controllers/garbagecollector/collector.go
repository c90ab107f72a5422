// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// collect handles one object: it deletes the object or changes its references if necessary.
func (c *Controller) collect(ctx context.Context, key string) error {
	if !c.graphComplete() {
		c.queue.AddAfter(key, retry)
		return nil
	}
	uid := types.UID(key)
	v, ok := c.graph.snapshot(uid)
	if !ok {
		return nil
	}
	if v.guessed {
		return nil // the object is known only from references; its dependents are in the queue themselves
	}
	if done, err := c.collectKnown(ctx, v); done || err != nil {
		return err
	}
	live, err := c.get(ctx, v.identity)
	switch {
	case apierrors.IsNotFound(err):
		c.queueAll(c.graph.remove(uid))
		return nil
	case errors.Is(err, errUnresolvable):
		// The kind was removed or changed its scope. The next discovery updates the kinds.
		c.queue.AddAfter(key, discoveryPeriod)
		return nil
	case err != nil:
		return err
	}
	switch {
	case live.DeletionTimestamp != nil && slices.Contains(live.Finalizers, metav1.FinalizerOrphanDependents):
		return c.orphan(ctx, live, v.identity)
	case live.DeletionTimestamp != nil && slices.Contains(live.Finalizers, metav1.FinalizerDeleteDependents):
		return c.foreground(ctx, live, v.identity)
	case live.DeletionTimestamp != nil || len(live.OwnerReferences) == 0:
		return nil
	}
	return c.decideOwners(ctx, live, v.identity)
}

// collectKnown deletes an object if the graph shows that all of its owners were deleted. It sends
// no other request: the delete has the version in the graph as a precondition. It returns false if
// the object needs more requests.
func (c *Controller) collectKnown(ctx context.Context, v vertex) (bool, error) {
	if v.deleting || v.foreground || v.orphan || len(v.owners) == 0 {
		return false, nil
	}
	for _, r := range v.owners {
		if there, known := c.graph.owner(r, v.namespace); there || !known {
			return false, nil
		}
	}
	if wait := c.delayFor(v.namespace); wait > 0 {
		c.queue.AddAfter(string(v.uid), wait)
		return true, nil
	}
	seen := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: v.uid, ResourceVersion: v.version}}
	err := c.delete(ctx, seen, v.identity, metav1.DeletePropagationBackground)
	if apierrors.IsConflict(err) || errors.Is(err, errUnresolvable) {
		return false, nil // the graph lags behind, so the object must be read
	}
	return true, err
}

// delayFor returns how long to wait before objects in a terminating namespace are collected: the
// namespace controller deletes them anyway.
func (c *Controller) delayFor(namespace string) time.Duration {
	ns, err := c.namespaces.Get(namespace)
	if err != nil || ns.DeletionTimestamp == nil {
		return 0
	}
	// At most leavingPause, because the clocks may differ.
	return min(leavingPause-c.Clock.Since(ns.DeletionTimestamp.Time), leavingPause)
}

// errUnresolvable is the error for an object that cannot be looked up: its kind is not served, or
// the kind is namespaced and the namespace is unknown.
var errUnresolvable = errors.New("unresolvable")

// client returns the client for the objects of a kind in a namespace. The namespace is
// ignored if the kind is cluster-scoped.
func (c *Controller) client(gvk schema.GroupVersionKind, namespace string) (metadata.ResourceInterface, error) {
	m, err := c.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	switch {
	case meta.IsNoMatchError(err):
		return nil, fmt.Errorf("%w: %w", errUnresolvable, err)
	case err != nil:
		return nil, err
	}
	r := c.Metadata.Resource(m.Resource)
	switch {
	case m.Scope.Name() == meta.RESTScopeNameRoot:
		return r, nil
	case namespace == "":
		return nil, fmt.Errorf("%w: kind %s is namespaced", errUnresolvable, gvk)
	}
	return r.Namespace(namespace), nil
}

// served returns err, unless it says that the path of the request is not served. Such an error does
// not mean that the object does not exist, but that its kind was removed or changed its scope since
// the last discovery. Then served resets the mapper and returns an error other than NotFound, so
// that the object is handled again.
func (c *Controller) served(err error) error {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return err
	}
	d := status.Status().Details
	if d != nil && d.Name != "" && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return err
	}
	c.Mapper.Reset()
	return fmt.Errorf("path is not served: %s", status.Status().Message)
}

// get reads an object. An object with another UID counts as not found.
func (c *Controller) get(ctx context.Context, id identity) (*metav1.PartialObjectMetadata, error) {
	r, err := c.client(id.gvk, id.namespace)
	if err != nil {
		return nil, err
	}
	live, err := r.Get(ctx, id.name, metav1.GetOptions{})
	if err != nil {
		return nil, c.served(err)
	}
	if live.UID != id.uid {
		return nil, notFound(id)
	}
	return live, nil
}

func notFound(id identity) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: id.gvk.Group, Resource: id.gvk.Kind}, id.name)
}

// decideOwners deletes an object if all of its owners were deleted. If some were, it removes the
// references to them. As in Kubernetes, it changes nothing if an owner cannot be resolved.
func (c *Controller) decideOwners(ctx context.Context, live *metav1.PartialObjectMetadata, id identity) error {
	var solid, waiting, gone []metav1.OwnerReference
	for _, r := range live.OwnerReferences {
		there, err := c.ownerThere(ctx, r, id)
		switch {
		case errors.Is(err, errUnresolvable):
			c.Log.Debug("Owner cannot be resolved", "object", id, "owner", r.Kind, "name", r.Name, "err", err)
			return nil
		case err != nil:
			return err
		case !there:
			gone = append(gone, r)
		case c.graph.waits(r.UID):
			waiting = append(waiting, r)
		default:
			solid = append(solid, r)
		}
	}
	switch {
	case len(solid) > 0 && len(gone)+len(waiting) > 0:
		return c.dropOwners(ctx, id, append(gone, waiting...))
	case len(solid) > 0:
		return nil
	case len(waiting) > 0 && len(c.graph.dependents(id.uid)) > 0:
		return c.deleteDependent(ctx, live, id)
	default:
		return c.delete(ctx, live, id, policyOf(live))
	}
}

// deleteDependent deletes an object that has dependents itself, in the foreground. A dependent that
// is being deleted too may itself be an owner of the object, and then both would wait forever. So
// the object first gets references that do not block.
func (c *Controller) deleteDependent(ctx context.Context, live *metav1.PartialObjectMetadata, id identity) error {
	for _, d := range c.graph.dependents(id.uid) {
		if d.deleting && d.blocking {
			if err := c.unblock(ctx, live, id); err != nil {
				return err
			}
			break
		}
	}
	return c.delete(ctx, live, id, metav1.DeletePropagationForeground)
}

// unblock makes an object no longer block the deletion of its owners.
func (c *Controller) unblock(ctx context.Context, live *metav1.PartialObjectMetadata, id identity) error {
	var refs []map[string]any
	for _, r := range live.OwnerReferences {
		if isBlocking(r) {
			refs = append(refs, map[string]any{"uid": r.UID, "blockOwnerDeletion": false})
		}
	}
	if len(refs) == 0 {
		return nil
	}
	return c.patch(ctx, id, map[string]any{"ownerReferences": refs, "uid": id.uid})
}

// ownerThere reports whether an owner exists. It gets owners that the graph does not know from the
// API server. The error is errUnresolvable if the reference cannot be resolved from the object's
// namespace. If the graph lags behind and the owner is being deleted, the object is queued again.
func (c *Controller) ownerThere(ctx context.Context, r metav1.OwnerReference, id identity) (bool, error) {
	if there, known := c.graph.owner(r, id.namespace); known {
		return there, nil
	}
	_, err := c.get(ctx, identity{schema.FromAPIVersionAndKind(r.APIVersion, r.Kind), id.namespace, r.Name, r.UID})
	seen, ok := c.graph.snapshot(r.UID)
	observed := ok && !seen.guessed
	if err != nil && observed && seen.namespace != "" && seen.namespace != id.namespace {
		c.Events.Eventf(reference(id), v1.EventTypeWarning, "OwnerRefInvalidNamespace",
			"ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
			r.APIVersion, r.Kind, id.namespace, r.Name, r.UID, id.namespace)
	}
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	case !observed:
		c.queue.AddAfter(string(id.uid), recheck)
	}
	return true, nil
}

func reference(id identity) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: id.gvk.GroupVersion().String(), Kind: id.gvk.Kind,
		Namespace: id.namespace, Name: id.name, UID: id.uid}
}

// policyOf returns the propagation policy that an object's finalizers request.
func policyOf(live *metav1.PartialObjectMetadata) metav1.DeletionPropagation {
	switch {
	case slices.Contains(live.Finalizers, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(live.Finalizers, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

func (c *Controller) delete(ctx context.Context, live *metav1.PartialObjectMetadata, id identity,
	policy metav1.DeletionPropagation) error {
	r, err := c.client(id.gvk, id.namespace)
	if err != nil {
		return err
	}
	// Delete only the version that was examined: an owner may have been added since.
	pre := &metav1.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion}
	err = c.served(r.Delete(ctx, id.name, metav1.DeleteOptions{Preconditions: pre, PropagationPolicy: &policy}))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s/%s: %w", id.gvk.Kind, id.namespace, id.name, err)
	}
	return nil
}

func (c *Controller) dropOwners(ctx context.Context, id identity, refs []metav1.OwnerReference) error {
	var out []map[string]any
	for _, r := range refs {
		out = append(out, map[string]any{"$patch": "delete", "uid": r.UID})
	}
	return c.patch(ctx, id, map[string]any{"ownerReferences": out, "uid": id.uid})
}

// patch changes an object's metadata: with a strategic merge patch if the kind supports it,
// otherwise by replacing the whole list of owners.
func (c *Controller) patch(ctx context.Context, id identity, metadata map[string]any) error {
	r, err := c.client(id.gvk, id.namespace)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	_, err = r.Patch(ctx, id.name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	if apierrors.IsUnsupportedMediaType(err) {
		err = c.mergeOwners(ctx, r, id, metadata)
	}
	if err = c.served(err); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch %s %s/%s: %w", id.gvk.Kind, id.namespace, id.name, err)
	}
	return nil
}

var errNoList = errors.New("no list of owners in the patch")

// mergeOwners applies a strategic merge patch of owners to a custom resource.
func (c *Controller) mergeOwners(ctx context.Context, r metadata.ResourceInterface, id identity,
	change map[string]any) error {
	live, err := r.Get(ctx, id.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	list, ok := change["ownerReferences"].([]map[string]any)
	if !ok {
		return errNoList
	}
	refs := slices.Clone(live.OwnerReferences)
	for _, one := range list {
		refs = slices.DeleteFunc(refs, func(o metav1.OwnerReference) bool {
			return one["$patch"] == "delete" &&
				o.UID == one["uid"]
		})
		for i := range refs {
			if v, ok := one["blockOwnerDeletion"].(bool); ok && refs[i].UID == one["uid"] {
				refs[i].BlockOwnerDeletion = &v
			}
		}
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"ownerReferences": refs, "uid": id.uid, "resourceVersion": live.ResourceVersion,
	}})
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	_, err = r.Patch(ctx, id.name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

// orphan removes the references to an object from its dependents, and then the object's finalizer.
func (c *Controller) orphan(ctx context.Context, live *metav1.PartialObjectMetadata, id identity) error {
	var errs []error
	for _, d := range c.graph.dependents(id.uid) {
		errs = append(errs, c.dropOwners(ctx, d.identity, []metav1.OwnerReference{{UID: id.uid}}))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.dropFinalizer(ctx, live, id, metav1.FinalizerOrphanDependents)
}

// foreground deletes an object's dependents, and removes its finalizer when no blocking dependent
// is left.
func (c *Controller) foreground(ctx context.Context, live *metav1.PartialObjectMetadata, id identity) error {
	blocked := false
	for _, d := range c.graph.dependents(id.uid) {
		blocked = blocked || d.blocking
		if !d.deleting {
			c.queue.Add(string(d.uid))
		}
	}
	if blocked {
		return nil // the object is queued again when one of them is deleted
	}
	return c.dropFinalizer(ctx, live, id, metav1.FinalizerDeleteDependents)
}

func (c *Controller) dropFinalizer(ctx context.Context, live *metav1.PartialObjectMetadata, id identity,
	name string) error {
	r, err := c.client(id.gvk, id.namespace)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(live.Finalizers), func(f string) bool { return f == name })
	body, err := json.Marshal(
		map[string]any{"metadata": map[string]any{"finalizers": left, "resourceVersion": live.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	_, err = r.Patch(ctx, id.name, types.MergePatchType, body, metav1.PatchOptions{})
	if err = c.served(err); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizer of %s %s/%s: %w", id.gvk.Kind, id.namespace, id.name, err)
	}
	return nil
}
