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

// collect decides about one object, whose UID is the key: it deletes the object or changes its
// owner references, if necessary.
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
		// Do nothing: this object is only known from owner references, and its dependents are
		// queued themselves.
		return nil
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
		// The kind was removed or its scope changed. The next discovery updates the known kinds.
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

// collectKnown deletes an object if the graph shows that all of its owners were deleted. It need
// not read the object first, because the delete request has the resource version in the graph as a
// precondition. It returns false if the object must be read from the API server to decide.
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
		return false, nil // the graph shows an old version of the object, so the object must be read
	}
	return true, err
}

// delayFor returns how long to wait before objects in a namespace are collected. The wait is
// positive only if the namespace is terminating, because the namespace controller then deletes the
// objects anyway.
func (c *Controller) delayFor(namespace string) time.Duration {
	ns, err := c.namespaces.Get(namespace)
	if err != nil || ns.DeletionTimestamp == nil {
		return 0
	}
	// The result is at most leavingPause, even if the API server's clock is ahead.
	return min(leavingPause-c.Clock.Since(ns.DeletionTimestamp.Time), leavingPause)
}

// errUnresolvable is the error for an owner or object that cannot be looked up, because its kind is
// not served, or because the kind is namespaced and the referring object is not.
var errUnresolvable = errors.New("unresolvable")

// client returns the client for the objects of a kind in a namespace. It ignores the namespace if
// the kind is cluster-scoped.
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

// served converts an error of a request to the API server. The error NotFound can mean that the
// path is not served, because the object's kind was removed or its scope changed since the last
// discovery. In this case, the method resets the mapper and returns another error, so that the
// object is retried and not treated as deleted. It returns all other errors unchanged.
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

// get reads an object from the API server. It returns NotFound if the object of this name has
// another UID.
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

// decideOwners deletes an object if none of its owners remains. If only some of them were deleted,
// it removes the references to these. An owner that is being deleted in the foreground counts as
// deleted if the object has another owner. As in Kubernetes, decideOwners changes nothing if an
// owner cannot be resolved.
func (c *Controller) decideOwners(ctx context.Context, live *metav1.PartialObjectMetadata, id identity) error {
	var solid, waiting, gone []metav1.OwnerReference
	for _, r := range live.OwnerReferences {
		there, err := c.ownerThere(ctx, r, id)
		switch {
		case errors.Is(err, errUnresolvable):
			c.Log.Debug("Keeping an object, because the kind of its owner is unknown",
				"object", id, "owner", r.Kind, "name", r.Name, "err", err)
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

// deleteDependent deletes an object in the foreground because its owner is being deleted in the
// foreground and it has dependents itself. One of these dependents may itself be waiting for this
// object to be deleted (a cycle of owners); then each would wait for the other. So if a blocking
// dependent is being deleted, deleteDependent first changes the object's owner references so that
// they do not block.
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

// unblock sets blockOwnerDeletion to false in all owner references of an object.
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

// ownerThere reports whether the owner that the reference r in the object id names exists. It asks
// the API server if the graph is not certain. It returns errUnresolvable if the reference cannot be
// resolved from the object's namespace. If the owner exists but no watch has shown it, ownerThere
// queues the object again for later, because the deletion of the owner may not be noticed.
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

// policyOf returns the propagation policy that corresponds to an object's finalizers.
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
	// Delete the object only in the version that was examined, because an owner may have been added
	// since.
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

// patch changes the metadata of an object. It uses a strategic merge patch if the object's kind
// supports that, otherwise it replaces the whole list of owner references.
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

// mergeOwners applies a strategic merge patch of owner references to an object whose kind does not
// support such patches (a custom resource).
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

// orphan removes the references to an object from its dependents, and then the finalizer orphan
// from the object.
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

// foreground queues an object's dependents for deletion. When no dependent blocks the deletion any
// more, it removes the finalizer foregroundDeletion from the object.
func (c *Controller) foreground(ctx context.Context, live *metav1.PartialObjectMetadata, id identity) error {
	blocked := false
	for _, d := range c.graph.dependents(id.uid) {
		blocked = blocked || d.blocking
		if !d.deleting {
			c.queue.Add(string(d.uid))
		}
	}
	if blocked {
		return nil // the object is queued again when a blocking dependent is deleted
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
