// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

func validatePersistentVolume(_ context.Context, pv *corev1.PersistentVolume) field.ErrorList {
	var r report.Report
	spec, at := &pv.Spec, field.NewPath("spec")
	podspec.ValidateAccessModes(&r, spec.AccessModes, at.Child("accessModes"))
	if len(spec.Capacity) == 0 {
		r.Required(at.Child("capacity"), "")
	}
	if _, ok := spec.Capacity[corev1.ResourceStorage]; !ok || len(spec.Capacity) > 1 {
		r.Add(field.NotSupported(at.Child("capacity"), spec.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for _, name := range report.Keys(spec.Capacity) {
		value := spec.Capacity[name]
		key := at.Child("capacity").Key(string(name))
		checkNotNegative(&r, key, value)
		if value.Sign() <= 0 {
			r.Invalid(key, value.String(), "must be greater than zero")
		}
	}
	if p := spec.PersistentVolumeReclaimPolicy; p != "" {
		report.OneOf(&r, at.Child("persistentVolumeReclaimPolicy"), p,
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	}
	checkVolumeAffinity(&r, spec, at.Child("nodeAffinity"))
	ValidateVolumeSource(&r, pv.Name, spec, at)
	if name := spec.StorageClassName; name != "" {
		r.Each(at.Child("storageClassName"), name, naming.NameIsDNSSubdomain(name, false))
	}
	if mode := spec.VolumeMode; mode != nil {
		report.OneOf(&r, at.Child("volumeMode"), *mode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	}
	checkAttributesClass(&r, spec, at)
	return r.Errors
}

// validateNewVolume judges a volume and its annotation.
func validateNewVolume(ctx context.Context, pv *corev1.PersistentVolume) field.ErrorList {
	return append(validatePersistentVolume(ctx, pv), checkMountAnnotation(pv)...)
}

// checkMountAnnotation lets only volumes that are mounted by their own programs say with
// which options, where these were before they had a field.
func checkMountAnnotation(pv *corev1.PersistentVolume) field.ErrorList {
	s := &pv.Spec.PersistentVolumeSource
	takes := s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.Glusterfs != nil || s.NFS != nil || s.RBD != nil ||
		s.Quobyte != nil || s.ISCSI != nil || s.Cinder != nil || s.CephFS != nil || s.AzureFile != nil || s.VsphereVolume != nil ||
		s.AzureDisk != nil || s.PhotonPersistentDisk != nil
	if _, said := pv.Annotations[corev1.MountOptionAnnotation]; !said || takes {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata").Child("annotations", corev1.MountOptionAnnotation), "may not specify mount options for this volume type")}
}

func checkVolumeAffinity(r *report.Report, spec *corev1.PersistentVolumeSpec, at *field.Path) {
	if spec.NodeAffinity == nil {
		return
	}
	if spec.NodeAffinity.Required == nil {
		r.Required(at.Child("required"), "must specify required node constraints")
		return
	}
	r.Add(podspec.ValidateNodeSelector(spec.NodeAffinity.Required, at.Child("required"))...)
}

func checkAttributesClass(r *report.Report, spec *corev1.PersistentVolumeSpec, at *field.Path) {
	class := spec.VolumeAttributesClassName
	if class == nil {
		return
	}
	if *class == "" {
		r.Required(at.Child("volumeAttributesClassName"), "an empty string is disallowed")
	} else {
		r.Each(at.Child("volumeAttributesClassName"), *class, naming.NameIsDNSSubdomain(*class, false))
	}
	if spec.CSI == nil {
		r.Required(at.Child("csi"), "has to be specified when using volumeAttributesClassName")
	}
}

func validatePersistentVolumeUpdate(ctx context.Context, pv, old *corev1.PersistentVolume) field.ErrorList {
	// Kubernetes judges the whole twice, and clients see both causes.
	whole := validatePersistentVolume(ctx, pv)
	r := report.Report{Errors: slices.Concat(whole, checkMountAnnotation(pv), field.ErrorList{resource.MetaHere()}, whole)}
	source := pv.Spec.PersistentVolumeSource.DeepCopy()
	if was := old.Spec.CSI; was != nil && was.ControllerExpandSecretRef == nil && source.CSI != nil {
		source.CSI.ControllerExpandSecretRef = nil
	}
	if !equality.Semantic.DeepEqual(*source, old.Spec.PersistentVolumeSource) {
		r.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			fmt.Sprintf("spec.persistentvolumesource is immutable after creation\n%v", diff.Diff(old.Spec.PersistentVolumeSource, *source)))
	}
	r.Immutable(field.NewPath("volumeMode"), pv.Spec.VolumeMode, old.Spec.VolumeMode)
	if old.Spec.NodeAffinity != nil && !sameAffinity(pv.Spec.NodeAffinity, old.Spec.NodeAffinity) {
		r.Invalid(field.NewPath("nodeAffinity"), pv.Spec.NodeAffinity, apivalidation.FieldImmutableErrorMsg+", except for updating from beta label to GA")
	}
	if old.Spec.VolumeAttributesClassName != nil && pv.Spec.VolumeAttributesClassName == nil {
		r.Forbidden(field.NewPath("spec", "volumeAttributesClassName"), "update from non-nil value to nil is forbidden")
	}
	return r.Errors
}

func validatePersistentVolumeClaim(_ context.Context, pvc *corev1.PersistentVolumeClaim) field.ErrorList {
	return podspec.ValidateClaimSpec(&pvc.Spec, field.NewPath("spec"))
}

// sameAffinity reports whether a volume is where it was; labels may have got the
// names they have today.
func sameAffinity(affinity, old *corev1.VolumeNodeAffinity) bool {
	was := old.DeepCopy()
	if affinity != nil && affinity.Required != nil && was.Required != nil {
		for i := range min(len(affinity.Required.NodeSelectorTerms), len(was.Required.NodeSelectorTerms)) {
			renameLabels(affinity.Required.NodeSelectorTerms[i].MatchExpressions, was.Required.NodeSelectorTerms[i].MatchExpressions)
		}
	}
	return equality.Semantic.DeepEqual(affinity, was)
}

func renameLabels(is, was []corev1.NodeSelectorRequirement) {
	today := map[string]string{
		corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
		corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
		"beta." + corev1.LabelOSStable:      corev1.LabelOSStable,
		"beta." + corev1.LabelArchStable:    corev1.LabelArchStable,
		corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
	}
	for i := range min(len(is), len(was)) {
		// A key that has no other name is found wanting elsewhere when it is empty.
		if is[i].Key == today[was[i].Key] {
			was[i].Key = is[i].Key
		}
	}
}

// namesGroup is true of a claim that came to be with the group of its source: an
// update does not judge it again.
func namesGroup(spec *corev1.PersistentVolumeClaimSpec) bool {
	return spec.DataSource != nil && spec.DataSource.APIGroup != nil || spec.DataSourceRef != nil && spec.DataSourceRef.APIGroup != nil
}

// validatePersistentVolumeClaimUpdate lets a claim be bound, a bound claim grow,
// and a class be named where there was none.
func validatePersistentVolumeClaimUpdate(ctx context.Context, pvc, old *corev1.PersistentVolumeClaim) field.ErrorList {
	r := report.Report{Errors: validatePersistentVolumeClaim(ctx, pvc)}
	if namesGroup(&old.Spec) {
		r.Errors = slices.DeleteFunc(r.Errors, func(err *field.Error) bool {
			return err.Field == "spec.dataSource.apiGroup" || err.Field == "spec.dataSourceRef.apiGroup"
		})
	}
	spec, was := pvc.Spec.DeepCopy(), old.Spec.DeepCopy()
	if was.VolumeName == "" {
		was.VolumeName = spec.VolumeName
	}
	annotation, annotated := old.Annotations[corev1.BetaStorageClassAnnotation]
	named := was.StorageClassName == nil && spec.StorageClassName != nil && (!annotated || *spec.StorageClassName == annotation)
	now, still := pvc.Annotations[corev1.BetaStorageClassAnnotation]
	if moved := named && annotated && (!still || now == annotation); !moved && now != annotation {
		r.Invalid(field.NewPath("metadata", "annotations", corev1.BetaStorageClassAnnotation), now, apivalidation.FieldImmutableErrorMsg)
	}
	if named {
		spec.StorageClassName = nil
	}
	if pvc.Status.Phase == corev1.ClaimBound {
		if spec.Resources.Requests != nil {
			spec.Resources.Requests[corev1.ResourceStorage] = was.Resources.Requests[corev1.ResourceStorage]
		}
		spec.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	if !equality.Semantic.DeepEqual(*spec, *was) {
		r.Forbidden(field.NewPath("spec"), fmt.Sprintf(
			"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n%v", diff.Diff(*was, *spec)))
	}
	size, oldSize := pvc.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if capacity := old.Status.Capacity[corev1.ResourceStorage]; size.Cmp(oldSize) < 0 && size.Cmp(capacity) <= 0 {
		r.Forbidden(field.NewPath("spec", "resources", "requests", "storage"), "field can not be less than status.capacity")
	}
	r.Immutable(field.NewPath("volumeMode"), pvc.Spec.VolumeMode, old.Spec.VolumeMode)
	if old.Status.CurrentVolumeAttributesClassName != nil && !ptr.Equal(pvc.Spec.VolumeAttributesClassName, old.Spec.VolumeAttributesClassName) {
		at := field.NewPath("spec", "volumeAttributesClassName")
		if class := pvc.Spec.VolumeAttributesClassName; class == nil {
			r.Forbidden(at, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil")
		} else if *class == "" {
			r.Forbidden(at, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil")
		}
	}
	return r.Errors
}

func validatePersistentVolumeClaimStatus(_ context.Context, pvc, _ *corev1.PersistentVolumeClaim) field.ErrorList {
	var r report.Report
	if len(pvc.Spec.AccessModes) == 0 {
		r.Required(field.NewPath("Spec", "accessModes"), "")
	}
	for _, name := range report.Keys(pvc.Status.Capacity) {
		checkNotNegative(&r, field.NewPath("status", "capacity").Key(string(name)), pvc.Status.Capacity[name])
	}
	checkAllocated(&r, &pvc.Status, field.NewPath("status"))
	return r.Errors
}

// checkAllocated judges what a claim that grows says of it. A state that is none
// is told by the resource it is of.
func checkAllocated(r *report.Report, status *corev1.PersistentVolumeClaimStatus, path *field.Path) {
	states := []corev1.ClaimResourceStatus{
		corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
		corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible, corev1.PersistentVolumeClaimNodeResizePending,
	}
	at := path.Child("allocatedResourceStatuses")
	for _, name := range report.Keys(status.AllocatedResourceStatuses) {
		checkClaimResource(r, at, name)
		if !slices.Contains(states, status.AllocatedResourceStatuses[name]) {
			r.Add(field.NotSupported(at, corev1.ClaimResourceStatus(name), states))
		}
	}
	at = path.Child("allocatedResources")
	for _, name := range report.Keys(status.AllocatedResources) {
		if !checkClaimResource(r, at, name) {
			continue
		}
		checkNotNegative(r, at.Key(string(name)), status.AllocatedResources[name])
	}
}

// checkNotNegative reports a negative size, also one that is no whole number or does not fit
// into 64 bits.
func checkNotNegative(r *report.Report, path *field.Path, value quantity.Quantity) {
	if value.Sign() >= 0 {
		return
	}
	if n, ok := value.AsInt64(); ok {
		r.Invalid(path, n, "must be a valid resource quantity")
		return
	}
	r.Invalid(path, value.String(), "must be a valid resource quantity")
}

// checkClaimResource reports whether a claim may have some of a resource: of those
// that Kubernetes itself counts it is storage alone.
func checkClaimResource(r *report.Report, path *field.Path, name corev1.ResourceName) bool {
	if msgs := naming.IsQualifiedName(string(name)); len(msgs) > 0 {
		r.Each(path, string(name), msgs)
		return false
	}
	if podspec.IsNative(name) && name != corev1.ResourceStorage {
		r.Add(field.NotSupported(path, string(name), []corev1.ResourceName{corev1.ResourceStorage}))
		return false
	}
	return true
}
