// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// atOnce is the maximum number of steps that are carried out in parallel.
const atOnce = 500

// actor carries out a plan that was made from the embedded state. replaced is the number of pods
// that it has deleted for an update.
type actor struct {
	*Controller
	state
	replaced atomic.Int32
}

// carryOut carries out the phases of a plan in order. It stops after a phase with an error.
func (a *actor) carryOut(ctx context.Context, p plan) error {
	for _, phase := range p.phases {
		if err := a.carryOutPhase(ctx, phase); err != nil {
			return err
		}
	}
	return nil
}

func (a *actor) carryOutPhase(ctx context.Context, phase []step) error {
	if a.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
		for _, s := range phase {
			if err := a.do(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
	for some := range slices.Chunk(phase, atOnce) {
		if _, err := controller.RunBatches(len(some), func(i int) error { return a.do(ctx, some[i]) }); err != nil {
			return err
		}
	}
	return nil
}

func (a *actor) do(ctx context.Context, s step) error {
	switch s.verb {
	case create:
		return a.create(ctx, s.pod)
	case repair:
		return a.repair(ctx, s.pod)
	case claims:
		if err := a.createClaims(ctx, s.pod); err != nil {
			return err
		}
		return a.setClaimOwnersRecorded(ctx, s.pod)
	case settle:
		return a.setClaimOwners(ctx, s.pod)
	case replace:
		if err := a.delete(ctx, s.pod); err != nil {
			return err
		}
		a.replaced.Add(1)
		return nil
	case destroy:
		return a.delete(ctx, s.pod)
	}
	panic("statefulset: verb " + string(s.verb))
}

// create creates the missing claims of a pod, and then the pod.
func (a *actor) create(ctx context.Context, pod *v1.Pod) error {
	r := a.update
	if revisionOf(pod) != r.name {
		r = a.current
	}
	pod = newPod(a.set, r, ordinalOf(pod))
	if err := a.createClaims(ctx, pod); err != nil {
		a.recordEvent("Create", pod, err)
		return err
	}
	got, err := a.CreatePod(ctx, pod)
	switch {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("create pod: %w", err)
	case err != nil:
		if ctx.Err() == nil {
			a.recordEvent("Create", pod, err)
		}
		if apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
			return nil // the namespace is terminating, and the set will be deleted with it
		}
		return fmt.Errorf("create pod: %w", err)
	}
	a.written.record(controller.Key(a.set), a.podCache, got.ResourceVersion)
	if err := a.setClaimOwnersRecorded(ctx, pod); err != nil {
		return err
	}
	a.recordEvent("Create", pod, nil)
	return nil
}

// repair creates missing claims of a pod, corrects the owners of its claims, and corrects the pod's
// identity and volumes.
func (a *actor) repair(ctx context.Context, pod *v1.Pod) error {
	if pod.Status.Phase == v1.PodPending || !hasVolumes(a.set, pod) {
		if err := a.createClaims(ctx, pod); err != nil {
			a.recordEvent("Update", pod, err)
			return err
		}
	}
	if err := a.setClaimOwnersRecorded(ctx, pod); err != nil {
		return err
	}
	if hasIdentity(pod) && hasVolumes(a.set, pod) {
		a.recordEvent("Update", pod, nil)
		return nil
	}
	pod = pod.DeepCopy()
	setIdentity(pod)
	setVolumes(a.set, pod)
	got, err := a.Client.CoreV1().Pods(pod.Namespace).Update(ctx, pod, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("update pod: %w", err) // the queue retries the set with the latest version of the pod
	}
	a.recordEvent("Update", pod, err)
	if err != nil {
		return fmt.Errorf("update pod: %w", err)
	}
	a.written.record(controller.Key(a.set), a.podCache, got.ResourceVersion)
	return nil
}

// delete deletes a pod, unless it was replaced by another pod of the same name.
func (a *actor) delete(ctx context.Context, pod *v1.Pod) error {
	a.expected.ExpectDeletion(controller.Key(a.set), pod.UID)
	err := a.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if err != nil {
		a.expected.Deleted(controller.Key(a.set), pod.UID)
	}
	if apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod: %w", err)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		a.recordEvent("Delete", pod, err)
		return fmt.Errorf("delete pod: %w", err)
	}
	a.recordEvent("Delete", pod, nil)
	return nil
}

// createClaims creates the missing claims of a pod. It returns an error if a claim is being
// deleted.
func (a *actor) createClaims(ctx context.Context, pod *v1.Pod) error {
	var errs []error
	for _, claim := range newClaims(a.set, ordinalOf(pod)) {
		there := a.claim(claim.Name)
		if there != nil {
			if there.DeletionTimestamp != nil {
				errs = append(errs, fmt.Errorf("pvc %s is being deleted", claim.Name))
			}
			continue
		}
		got, err := a.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
		switch {
		case err == nil:
			a.written.record(controller.Key(a.set), a.claimCache, got.ResourceVersion)
			a.Events.Eventf(a.set, v1.EventTypeNormal, "SuccessfulCreate",
				"Create Claim %s Pod %s in StatefulSet %s success", claim.Name, pod.Name, a.set.Name)
			continue
		case !apierrors.IsAlreadyExists(err) && ctx.Err() == nil:
			a.Events.Eventf(a.set, v1.EventTypeWarning, "FailedCreate",
				"Create Claim %s for Pod %s in StatefulSet %s failed error: %s", claim.Name, pod.Name, a.set.Name, err)
		}
		errs = append(errs, fmt.Errorf("failed to create PVC %s: %w", claim.Name, err))
	}
	return errors.Join(errs...)
}

func (a *actor) setClaimOwnersRecorded(ctx context.Context, pod *v1.Pod) error {
	err := a.setClaimOwners(ctx, pod)
	if err != nil {
		a.recordEvent("Update", pod, err)
	}
	return err
}

// setClaimOwners sets the owners of a pod's claims as the StatefulSet's retention policy requires.
func (a *actor) setClaimOwners(ctx context.Context, pod *v1.Pod) error {
	for i := range a.set.Spec.VolumeClaimTemplates {
		claim := a.claim(claimName(a.set, a.set.Spec.VolumeClaimTemplates[i].Name, ordinalOf(pod)))
		if claim == nil {
			continue // the set is synced again when the cache shows the claim
		}
		refs, change, contested := claimOwners(claim, a.set, pod)
		if contested {
			a.Events.Eventf(a.set, v1.EventTypeWarning, "ConflictingController",
				"PersistentVolumeClaim %s has a conflicting OwnerReference that acts as a manging "+
					"controller, the retention policy is ignored for this claim", claim.Name)
		}
		if !change {
			continue
		}
		claim = claim.DeepCopy()
		claim.OwnerReferences = refs
		got, err := a.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("could not update claim %s for delete policy ownerRefs: %w", claim.Name, err)
		}
		a.written.record(controller.Key(a.set), a.claimCache, got.ResourceVersion)
	}
	return nil
}

// recordEvent records an event about an action on a pod. did is the action, such as "Create", and
// err its error or nil.
func (a *actor) recordEvent(did string, pod *v1.Pod, err error) {
	if err != nil {
		a.Events.Eventf(a.set, v1.EventTypeWarning, "Failed"+did,
			"%s Pod %s in StatefulSet %s failed error: %s", did, pod.Name, a.set.Name, err)
		return
	}
	a.Events.Eventf(a.set, v1.EventTypeNormal, "Successful"+did, "%s Pod %s in StatefulSet %s successful", did,
		pod.Name, a.set.Name)
}
