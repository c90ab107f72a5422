// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

// emptyWait is the interval at which the controller checks whether all objects of a deleted
// CustomResourceDefinition are gone.
const emptyWait = 500 * time.Millisecond

// Hooks returns the registry hooks of CustomResourceDefinitions. They make a deleted definition
// stay until all its objects are gone.
func Hooks() resource.Hooks[*apiextensionsv1.CustomResourceDefinition] {
	return resource.Hooks[*apiextensionsv1.CustomResourceDefinition]{BeforeDelete: checkDelete, Ending: keepEnding}
}

// checkDelete checks the preconditions for the deletion of a CustomResourceDefinition. Its messages
// are those of Kubernetes for CustomResourceDefinitions.
func checkDelete(_ context.Context, obj *apiextensionsv1.CustomResourceDefinition,
	options *metav1.DeleteOptions) error {
	p := options.Preconditions
	if p == nil {
		return nil
	}
	var err error
	switch {
	case p.UID != nil && *p.UID != obj.GetUID():
		// This is Kubernetes' message.
		err = fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, obj.GetUID())
	case p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion():
		// This is Kubernetes' message.
		err = fmt.Errorf(
			"Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v",
			*p.ResourceVersion, obj.GetResourceVersion())
	default:
		return nil
	}
	return apierrors.NewConflict(Definitions(), obj.GetName(), err)
}

// keepEnding adds the finalizer and the condition Terminating to a CustomResourceDefinition that is
// being deleted. It returns true, so that the definition stays.
func keepEnding(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) bool {
	if apihelpers.CRDHasFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer) {
		return true
	}
	crd.DeletionGracePeriodSeconds = nil
	if crd.DeletionTimestamp != nil {
		crd.Generation-- // the registry incremented it, but in Kubernetes a deletion does not change it here
	}
	crd.Finalizers = append(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
	set(crd, condition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionPending",
		Message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	}, resource.Time(ctx))
	return true
}

func now(c clock.Clock) metav1.Time { return metav1.NewTime(c.Now()) }

// end continues the deletion of a CustomResourceDefinition: it deletes the definition's objects,
// and removes the definition's finalizer once no objects are left.
func (c *Controller) end(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	if !apihelpers.CRDHasFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer) {
		return nil
	}
	crd = crd.DeepCopy()
	gr := schema.ParseGroupResource(crd.Name)
	outcome := condition{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionFalse}
	switch {
	case c.builtIn(gr):
		outcome.Reason, outcome.Message = "OverlappingBuiltInResource", "instances overlap with built-in resources in storage"
	case !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established):
		outcome.Reason, outcome.Message = "NeverEstablished", "resource was never established"
	default:
		if begun := apihelpers.FindCRDCondition(crd, apiextensionsv1.Terminating); begun == nil ||
			begun.Status != apiextensionsv1.ConditionTrue || begun.Reason == "InstanceDeletionPending" {
			set(crd, condition{
				Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue,
				Reason: "InstanceDeletionInProgress", Message: "CustomResource deletion is in progress",
			}, now(c.cfg.Clock))
			return c.write(ctx, crd) // this write causes an event, after which end is called again
		}
		left, reason, err := c.empty(ctx, crd)
		if err != nil {
			set(crd, condition{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue,
				Reason: reason, Message: err.Error()}, now(c.cfg.Clock))
			if werr := c.write(ctx, crd); werr != nil {
				c.log.Info("Failed to write condition of custom resource definition", "name", crd.Name, "err", werr)
			}
			return err
		}
		if left > 0 {
			c.queue.AddAfter(crd.Name, emptyWait)
			return nil
		}
		outcome.Reason, outcome.Message = "InstanceDeletionCompleted", "removed all instances"
	}
	set(crd, outcome, now(c.cfg.Clock))
	crd.Finalizers = slices.DeleteFunc(crd.Finalizers,
		func(f string) bool { return f == apiextensionsv1.CustomResourceCleanupFinalizer })
	return c.write(ctx, crd)
}

// empty deletes all objects of a CustomResourceDefinition, in all versions and without admission.
// It returns how many objects are left, because finalizers keep them. If it fails, reason is the
// reason for the condition.
func (c *Controller) empty(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (left int,
	reason string, err error) {
	r, err := c.storedObjects(crd)
	if err != nil {
		return 0, "InstanceDeletionFailed", fmt.Errorf("could not list instances: %w", err)
	}
	defer r.Store().Close()
	if _, err := r.DeleteCollection(ctx, "", metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return 0, "InstanceDeletionFailed", fmt.Errorf("could not issue all deletes: %w", err)
	}
	page, err := r.List(ctx, "", metav1.ListOptions{})
	if err != nil {
		return 0, "InstanceDeletionCheck", fmt.Errorf("could not confirm zero CustomResources remaining: %w", err)
	}
	return len(page.Records), "", nil
}

// storedObjects returns a registry for the objects of crd in the storage version. It works even if
// that version is not served.
func (c *Controller) storedObjects(crd *apiextensionsv1.CustomResourceDefinition) (*registry.Registry, error) {
	c.mu.Lock()
	var record *store.Record
	if e := c.known[crd.Name]; e != nil {
		record = e.record
	}
	c.mu.Unlock()
	if record == nil {
		return nil, apierrors.NewNotFound(Definitions(), crd.Name)
	}
	d, err := c.newDefinition(record, crd)
	if err != nil {
		return nil, err
	}
	return registry.New(d.storedRow(crd), registry.Config{Scheme: c.cfg.Scheme, Store: c.cfg.Store, Clock: c.cfg.Clock})
}

// write stores the status of crd. If the CustomResourceDefinition has changed in the meantime, it
// stores nothing: the event of the change causes another call of sync.
func (c *Controller) write(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	_, _, err := c.definitions().Update(ctx, registry.Update{
		Name: crd.Name, Subresource: "status",
		Transform: func(context.Context, resource.Object) (resource.Object, error) { return crd.DeepCopy(), nil },
	})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
