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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// persistentVolumeClaimRow returns the row of the kind table for the resource
// persistentvolumeclaims.
func persistentVolumeClaimRow() *resource.Row {
	parts := strategy.Parts[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimSpec,
		corev1.PersistentVolumeClaimStatus](
		func(o *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaimSpec, *corev1.PersistentVolumeClaimStatus) {
			return &o.Spec, &o.Status
		})
	return resource.Of[corev1.PersistentVolumeClaimList](resource.Kind[*corev1.PersistentVolumeClaim]{
		Group: "", Version: "v1", Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true,
		ShortNames: []string{"pvc"},

		Default:                  defaultPersistentVolumeClaim,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		PrepareCreate:            preparePersistentVolumeClaimCreate,
		Validate:                 validatePersistentVolumeClaim,
		PrepareUpdate:            preparePersistentVolumeClaimUpdate,
		ValidateUpdate:           validatePersistentVolumeClaimUpdate,
		Warnings:                 warnPersistentVolumeClaim,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Status", Type: "string", Description: corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["phase"]},
			{Name: "Volume", Type: "string", Description: corev1.PersistentVolumeClaimSpec{}.SwaggerDoc()["volumeName"]},
			{Name: "Capacity", Type: "string", Description: corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["capacity"]},
			{Name: "Access Modes", Type: "string",
				Description: corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["accessModes"]},
			{Name: "StorageClass", Type: "string", Description: "StorageClass of the pvc"},
			{Name: "VolumeAttributesClass", Type: "string", Description: "VolumeAttributesClass of the pvc"},
			column.Age(),
			{Name: "VolumeMode", Type: "string",
				Description: corev1.PersistentVolumeClaimSpec{}.SwaggerDoc()["volumeMode"], Priority: column.Wide},
		},
		Cells: persistentVolumeClaimCells,

		Subresources: []resource.Sub[*corev1.PersistentVolumeClaim]{
			{Subresource: strategy.View("status", "spec"),
				PrepareUpdate: func(ctx context.Context, pvc, old *corev1.PersistentVolumeClaim) {
					parts.KeepSpec(ctx, pvc, old)
					if old.Status.HealthStatus == nil {
						pvc.Status.HealthStatus = nil
					}
				},
				ValidateUpdate: validatePersistentVolumeClaimStatus},
		},
	})
}

func defaultPersistentVolumeClaim(pvc *corev1.PersistentVolumeClaim) { DefaultClaim(pvc) }

// DefaultClaim sets the defaults of a volume claim or of a claim template.
func DefaultClaim(pvc *corev1.PersistentVolumeClaim) {
	unset.Fill(&pvc.Status.Phase, corev1.ClaimPending)
	podspec.DefaultClaimSpec(&pvc.Spec)
	podspec.Milli(pvc.Status.Capacity)
	podspec.Milli(pvc.Status.AllocatedResources)
}

func preparePersistentVolumeClaimCreate(_ context.Context, pvc *corev1.PersistentVolumeClaim) {
	pvc.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	dropClaimFields(&pvc.Spec, nil)
	completeDataSources(&pvc.Spec)
}

func preparePersistentVolumeClaimUpdate(_ context.Context, pvc, old *corev1.PersistentVolumeClaim) {
	pvc.Status = old.Status
	dropClaimFields(&pvc.Spec, &old.Spec)
	completeDataSources(&pvc.Spec)
	completeDataSources(&old.Spec)
}

const snapshotGroup = "snapshot.storage.k8s.io"

// dropClaimFields clears data sources that are not supported, unless old has a data source already.
// Not supported are a dataSource that is neither a claim nor a snapshot, and a dataSourceRef to
// another namespace.
func dropClaimFields(spec, old *corev1.PersistentVolumeClaimSpec) {
	hadSource := old != nil && old.DataSource != nil
	hadRef := old != nil && old.DataSourceRef != nil
	if ref := spec.DataSourceRef; ref != nil && ref.Namespace != nil && *ref.Namespace != "" && !hadRef {
		spec.DataSourceRef = nil
	}
	if hadSource || hadRef || spec.DataSourceRef != nil || spec.DataSource == nil {
		return
	}
	group := ""
	if spec.DataSource.APIGroup != nil {
		group = *spec.DataSource.APIGroup
	}
	claim := group == "" && spec.DataSource.Kind == "PersistentVolumeClaim"
	snapshot := group == snapshotGroup && spec.DataSource.Kind == "VolumeSnapshot"
	if !claim && !snapshot {
		spec.DataSource = nil
	}
}

// completeDataSources copies dataSource to dataSourceRef or the reverse if only one of them is set.
func completeDataSources(spec *corev1.PersistentVolumeClaimSpec) {
	source, ref := spec.DataSource, spec.DataSourceRef
	switch {
	case source != nil && ref == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
	case source == nil && ref != nil && (ref.Namespace == nil || *ref.Namespace == ""):
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
}

func validatePersistentVolumeClaim(_ context.Context, pvc *corev1.PersistentVolumeClaim) field.ErrorList {
	return podspec.ValidateClaimSpec(&pvc.Spec, field.NewPath("spec"))
}

// validatePersistentVolumeClaimUpdate rejects changes of the spec, with these exceptions: an
// unbound claim can get a volume, a storage class that was unset can be set, and the size and the
// attributes class of a bound claim can change.
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
	named := was.StorageClassName == nil && spec.StorageClassName != nil &&
		(!annotated || *spec.StorageClassName == annotation)
	now, still := pvc.Annotations[corev1.BetaStorageClassAnnotation]
	if moved := named && annotated && (!still || now == annotation); !moved && now != annotation {
		r.Invalid(field.NewPath("metadata", "annotations", corev1.BetaStorageClassAnnotation), now,
			apivalidation.FieldImmutableErrorMsg)
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
			"spec is immutable after creation except resources.requests and volumeAttributesClassName for "+
				"bound claims\n%v", diff.Diff(*was, *spec)))
	}
	size, oldSize := pvc.Spec.Resources.Requests[corev1.ResourceStorage],
		old.Spec.Resources.Requests[corev1.ResourceStorage]
	if capacity := old.Status.Capacity[corev1.ResourceStorage]; size.Cmp(oldSize) < 0 && size.Cmp(capacity) <= 0 {
		r.Forbidden(field.NewPath("spec", "resources", "requests", "storage"), "field can not be less than status.capacity")
	}
	r.Immutable(field.NewPath("volumeMode"), pvc.Spec.VolumeMode, old.Spec.VolumeMode)
	if old.Status.CurrentVolumeAttributesClassName != nil &&
		!ptr.Equal(pvc.Spec.VolumeAttributesClassName, old.Spec.VolumeAttributesClassName) {
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

// checkAllocated checks the allocated resources and their resize states. As in Kubernetes, the
// error for an unknown state shows the name of the resource instead of the state.
func checkAllocated(r *report.Report, status *corev1.PersistentVolumeClaimStatus, path *field.Path) {
	states := []corev1.ClaimResourceStatus{
		corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
		corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible,
		corev1.PersistentVolumeClaimNodeResizePending,
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

// checkNotNegative reports a negative quantity. The quantity may be fractional or too large for 64
// bits.
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

// checkClaimResource reports whether the status of a claim can have the resource name: storage, or
// an extended resource. If it cannot, checkClaimResource also reports an error.
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

func warnPersistentVolumeClaim(_ context.Context, pvc, _ *corev1.PersistentVolumeClaim) []string {
	var warnings []string
	if _, there := pvc.Annotations[corev1.BetaStorageClassAnnotation]; there {
		warnings = append(warnings, field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation).String()+
			`: deprecated since v1.8; use "storageClassName" attribute instead`)
	}
	return append(warnings, podspec.WarnOfClaim(&pvc.Spec, field.NewPath("spec"))...)
}

func persistentVolumeClaimCells(pvc *corev1.PersistentVolumeClaim, env resource.CellEnv) []any {
	phase := string(pvc.Status.Phase)
	if pvc.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	capacity, modes := "", ""
	if pvc.Spec.VolumeName != "" {
		size := pvc.Status.Capacity[corev1.ResourceStorage]
		capacity, modes = size.String(), accessModes(pvc.Status.AccessModes)
	}
	return []any{
		pvc.Name, phase, pvc.Spec.VolumeName, capacity, modes,
		storageClass(pvc.Annotations, pvc.Spec.StorageClassName),
		column.Deref(pvc.Spec.VolumeAttributesClassName, column.Unset),
		env.Age(pvc.CreationTimestamp), column.Deref(pvc.Spec.VolumeMode, column.Unset),
	}
}
