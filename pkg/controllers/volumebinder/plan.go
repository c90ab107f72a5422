// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinder

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"keelson.dev/keelson/pkg/api/intree"
)

// event is an event to record about a claim or a volume.
type event struct {
	kind, reason, message string
	// onChange means that the event is recorded only when the phase changes.
	onChange bool
}

func normal(reason, format string, args ...any) event {
	return event{kind: v1.EventTypeNormal, reason: reason, message: fmt.Sprintf(format, args...)}
}

func warning(reason, format string, args ...any) event {
	return event{kind: v1.EventTypeWarning, reason: reason, message: fmt.Sprintf(format, args...)}
}

// claimFacts are the facts about a claim from which planClaim decides what to do.
type claimFacts struct {
	// found is the volume that the claim names or, if it names none, the volume that matches best.
	found *v1.PersistentVolume
	// delayed means that the StorageClass has delayed binding: the scheduler selects a volume or
	// node when a pod uses the claim.
	delayed bool
	// class is the claim's StorageClass, and standard the default StorageClass.
	class, standard *storagev1.StorageClass
	// pods are the names of the pods that use the claim and have no node yet.
	pods []string
	// fixed means that the dynamic provisioning of volumes is turned off (Options.NoProvisioning).
	fixed bool
}

// claimPlan is what to do for a claim: bind it to a volume, set its class, assign it to a
// provisioner, or set its phase. Empty fields mean that there is nothing to do.
type claimPlan struct {
	bind        *v1.PersistentVolume
	class       string
	provisioner string
	phase       v1.PersistentVolumeClaimPhase
	event       event
}

func planClaim(claim *v1.PersistentVolumeClaim, f claimFacts) claimPlan {
	switch {
	case metav1.HasAnnotation(claim.ObjectMeta, volume.AnnBindCompleted):
		return planBound(claim, f.found)
	case claim.Spec.VolumeName != "":
		return planNamed(claim, f.found)
	case f.found != nil:
		return claimPlan{bind: f.found}
	case f.standard != nil && !volume.PersistentVolumeClaimHasClass(claim):
		return claimPlan{class: f.standard.Name}
	case f.delayed && !volume.IsDelayBindingProvisioning(claim):
		return claimPlan{phase: v1.ClaimPending, event: waiting(f.pods)}
	case volume.GetPersistentVolumeClaimClass(claim) != "" && f.fixed:
		return claimPlan{phase: v1.ClaimPending}
	case volume.GetPersistentVolumeClaimClass(claim) != "":
		return planProvisioning(claim, f.class)
	}
	return claimPlan{phase: v1.ClaimPending,
		event: normal("FailedBinding", "no persistent volumes available for this claim and no storage class is set")}
}

// planBound returns the plan for a claim that was bound to a volume. The claim is lost if that
// volume does not exist any more or is bound to another claim.
func planBound(claim *v1.PersistentVolumeClaim, found *v1.PersistentVolume) claimPlan {
	lost := func(reason, message string) claimPlan {
		e := warning(reason, "%s", message)
		e.onChange = true
		return claimPlan{phase: v1.ClaimLost, event: e}
	}
	switch {
	case claim.Spec.VolumeName == "":
		return lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	case found == nil:
		return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case found.Spec.ClaimRef == nil || found.Spec.ClaimRef.UID == claim.UID:
		return claimPlan{bind: found}
	}
	return lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}

// planNamed returns the plan for a claim that names a volume: bind it to this volume, or set the
// phase Pending.
func planNamed(claim *v1.PersistentVolumeClaim, found *v1.PersistentVolume) claimPlan {
	wait := claimPlan{phase: v1.ClaimPending}
	switch {
	case found == nil:
		return wait
	case found.Spec.ClaimRef == nil:
		if err := mismatch(claim, found); err != nil {
			wait.event = warning("VolumeMismatch", "Cannot bind to requested volume %q: %s", found.Name, err)
			return wait
		}
		return claimPlan{bind: found}
	case volume.IsVolumeBoundToClaim(found, claim):
		return claimPlan{bind: found}
	}
	wait.event = warning("FailedBinding", "volume %q already bound to a different claim.", found.Name)
	return wait
}

// planProvisioning returns the plan for a claim for which a volume must be provisioned: assign it
// to the provisioner of its class.
func planProvisioning(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) claimPlan {
	if class == nil {
		return claimPlan{event: warning("ProvisioningFailed", "storageclass.storage.k8s.io %q not found",
			volume.GetPersistentVolumeClaimClass(claim))}
	}
	name, ours := provisionerOf(class.Provisioner)
	if ours {
		return claimPlan{event: warning("ProvisioningFailed", "no volume plugin matched name: %s", class.Provisioner)}
	}
	return claimPlan{provisioner: name,
		event: normal("ExternalProvisioning", "Waiting for a volume to be created either by the external provisioner '%s' "+
			"or manually by the system administrator. If volume creation is delayed, please verify that "+
			"the provisioner is running and correctly registered.", name)}
}

// provisionerOf returns the CSI driver that provisions volumes for a class with the provisioner
// name. If name is that of a provisioner that was part of Kubernetes (in-tree), it is the CSI
// driver that has replaced it. unserved is true if there is no replacement.
func provisionerOf(name string) (driver string, unserved bool) {
	if driver := intree.ProvisionerDriver(name); driver != "" {
		return driver, false
	}
	return name, strings.HasPrefix(name, "kubernetes.io/")
}

// waiting returns the event for a claim that waits for the scheduler. pods are the pods that use
// it.
func waiting(pods []string) event {
	switch len(pods) {
	case 0:
		return normal("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case 1:
		return normal("WaitForPodScheduled", "waiting for pod %s to be scheduled", pods[0])
	}
	return normal("WaitForPodScheduled", "waiting for pods %s to be scheduled", strings.Join(pods, ","))
}

// volumePlan is what to do for a volume: set its phase, remove its claim (unbind), or queue its
// claim (wake).
type volumePlan struct {
	phase  v1.PersistentVolumePhase
	unbind bool
	wake   bool
	event  event
	// claimEvent is an event to record about the claim.
	claimEvent event
}

// planVolume returns the plan for a volume. claim is the claim that the volume refers to, or nil if
// that does not exist.
func planVolume(v *v1.PersistentVolume, claim *v1.PersistentVolumeClaim) volumePlan {
	ref := v.Spec.ClaimRef
	switch {
	case ref == nil || ref.UID == "":
		return volumePlan{phase: v1.VolumeAvailable}
	case claim == nil:
		return reclaim(v)
	case claim.Spec.VolumeName == "" && volume.CheckVolumeModeMismatches(&claim.Spec, &v.Spec):
		return volumePlan{
			event: warning("VolumeMismatch",
				"Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible volumeMode.", claim.Name),
			claimEvent: warning("VolumeMismatch",
				"Cannot bind PersistentVolume %q to requested PersistentVolumeClaim due to incompatible volumeMode.", v.Name),
		}
	case claim.Spec.VolumeName == "":
		return volumePlan{wake: true}
	case claim.Spec.VolumeName == v.Name:
		return volumePlan{phase: v1.VolumeBound}
	case metav1.HasAnnotation(v.ObjectMeta, volume.AnnDynamicallyProvisioned) &&
		v.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete:
		return reclaim(v) // the claim is bound to another volume, so this volume is not needed
	}
	return volumePlan{unbind: true}
}

// reclaim returns the plan for a volume whose claim was deleted or is bound to another volume.
// External provisioners delete released volumes that they have created.
func reclaim(v *v1.PersistentVolume) volumePlan {
	failed := func(reason, message string) volumePlan {
		e := warning(reason, "%s", message)
		e.onChange = true
		return volumePlan{phase: v1.VolumeFailed, event: e}
	}
	released := volumePlan{phase: v1.VolumeReleased}
	if v.Status.Phase == v1.VolumeFailed {
		released.phase = "" // keep the phase Failed, so that users can see it
	}
	if v.Annotations[volume.AnnMigratedTo] != "" {
		return released
	}
	switch v.Spec.PersistentVolumeReclaimPolicy {
	case v1.PersistentVolumeReclaimRetain:
		return released
	case v1.PersistentVolumeReclaimRecycle:
		return failed("VolumeFailedRecycle", "No recycler plugin found for the volume!")
	case v1.PersistentVolumeReclaimDelete:
		by := v.Annotations[volume.AnnDynamicallyProvisioned]
		switch {
		case by == "" && v.Spec.CSI != nil:
			return released
		case by == "":
			return failed("VolumeFailedDelete",
				fmt.Sprintf("error getting deleter volume plugin for volume %q: no deletable volume plugin matched", v.Name))
		case strings.HasPrefix(by, "kubernetes.io/"):
			return failed("VolumeFailedDelete", "no volume plugin matched name: "+by)
		}
		return released
	}
	return failed("VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy")
}
