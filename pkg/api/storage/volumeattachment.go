// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"math"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/core"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// volumeAttachmentRow returns the row of the kind table for the resource volumeattachments.
func volumeAttachmentRow() *resource.Row {
	parts := strategy.Parts[storagev1.VolumeAttachment, storagev1.VolumeAttachmentSpec,
		storagev1.VolumeAttachmentStatus](func(o *storagev1.VolumeAttachment) (*storagev1.VolumeAttachmentSpec,
		*storagev1.VolumeAttachmentStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[storagev1.VolumeAttachmentList](resource.Kind[*storagev1.VolumeAttachment]{
		Group: "storage.k8s.io", Version: "v1", Resource: "volumeattachments", Kind: "VolumeAttachment",

		MetaOnUpdate:   resource.CheckNameAndFinalizers,
		Default:        defaultVolumeAttachment,
		PrepareCreate:  parts.ClearStatus,
		PrepareUpdate:  parts.KeepStatus,
		ResetFields:    []string{"status"},
		ReturnDeleted:  true,
		Validate:       validateVolumeAttachment,
		ValidateUpdate: validateVolumeAttachmentUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Attacher", Type: "string", Format: "name",
				Description: storagev1.VolumeAttachmentSpec{}.SwaggerDoc()["attacher"]},
			{Name: "PV", Type: "string", Description: storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"]},
			{Name: "Node", Type: "string", Description: storagev1.VolumeAttachmentSpec{}.SwaggerDoc()["nodeName"]},
			{Name: "Attached", Type: "boolean", Description: storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"]},
			column.Age(),
		},
		Cells: volumeAttachmentCells,

		Subresources: []resource.Sub[*storagev1.VolumeAttachment]{
			{Subresource: strategy.View("status", "spec",
				"metadata").WithMetaChecks(resource.CheckNameAndFinalizers),
				PrepareUpdate: parts.KeepSpecAndMeta, ValidateUpdate: validateVolumeAttachmentUpdate},
		},
	})
}

func defaultVolumeAttachment(a *storagev1.VolumeAttachment) {
	if inline := a.Spec.Source.InlineVolumeSpec; inline != nil {
		podspec.Milli(inline.Capacity)
		podspec.DefaultPersistentSource(&inline.PersistentVolumeSource)
	}
}

func validateVolumeAttachment(_ context.Context, a *storagev1.VolumeAttachment) field.ErrorList {
	r, spec, path := &report.Report{}, &a.Spec, field.NewPath("spec")
	driverName(r, path.Child("attacher"), spec.Attacher)
	attachmentSource(r, path.Child("source"), spec.Source)
	r.Subdomain(path.Child("nodeName"), spec.NodeName)

	status := field.NewPath("status")
	size := 0
	for key, value := range a.Status.AttachmentMetadata {
		size += len(key) + len(value)
	}
	if size > maxAttachmentMetadata {
		r.TooLong(status.Child("attachmentMetadata"), maxAttachmentMetadata)
	}
	volumeError(r, status.Child("attachError"), a.Status.AttachError)
	volumeError(r, status.Child("detachError"), a.Status.DetachError)
	if name := spec.Source.PersistentVolumeName; name != nil {
		r.Subdomain(field.NewPath("spec.source.persistentVolumeName"), *name)
	}
	return r.Errors
}

func validateVolumeAttachmentUpdate(ctx context.Context, a, old *storagev1.VolumeAttachment) field.ErrorList {
	r := &report.Report{Errors: validateVolumeAttachment(ctx, a)}
	r.Immutable(field.NewPath("spec"), a.Spec, old.Spec)
	return r.Errors
}

func attachmentSource(r *report.Report, path *field.Path, s storagev1.VolumeAttachmentSource) {
	const one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	name, inline := s.PersistentVolumeName, s.InlineVolumeSpec
	switch {
	case name == nil && inline == nil:
		r.Required(path, one)
	case name != nil && inline != nil:
		r.Forbidden(path, one)
	case name != nil && *name == "":
		r.Required(path.Child("persistentVolumeName"), "must specify non empty persistentVolumeName")
	case inline != nil:
		inlineVolume(r, path.Child("inlineVolumeSpec"), inline)
	}
}

// inlineVolume validates the volume in an attachment that names no persistent volume. It must be a
// CSI volume and must not have fields that only persistent volumes use, such as a reference to a
// claim.
func inlineVolume(r *report.Report, path *field.Path, v *corev1.PersistentVolumeSpec) {
	const inline = " in the context of inline volumes"
	forbid := func(set bool, child, may string) {
		if set {
			r.Forbidden(path.Child(child), may+inline)
		}
	}
	forbid(v.ClaimRef != nil, "claimRef", "may not be specified")
	forbid(len(v.Capacity) > 0, "capacity", "may not be specified")
	if v.CSI == nil {
		r.Required(path.Child("csi"), "has to be specified"+inline)
	}
	podspec.ValidateAccessModes(r, v.AccessModes, path.Child("accessModes"))
	policy, mode := v.PersistentVolumeReclaimPolicy, v.VolumeMode
	forbid(policy != "" && policy != corev1.PersistentVolumeReclaimRetain, "persistentVolumeReclaimPolicy",
		"may only be "+string(corev1.PersistentVolumeReclaimRetain))
	forbid(v.NodeAffinity != nil, "nodeAffinity", "may not be specified")
	core.ValidateVolumeSource(r, "", v, path) // an inline volume has no name
	forbid(v.StorageClassName != "", "storageClassName", "may not be specified")
	forbid(mode != nil && *mode != corev1.PersistentVolumeFilesystem, "volumeMode",
		"may not specify volumeMode other than "+string(corev1.PersistentVolumeFilesystem))
}

func volumeError(r *report.Report, path *field.Path, e *storagev1.VolumeError) {
	if e == nil {
		return
	}
	if len(e.Message) > maxErrorMessage {
		r.TooLong(path.Child("message"), maxErrorMessage)
	}
	if code := e.ErrorCode; code != nil && *code < 0 {
		r.Invalid(path.Child("errorCode"), *code, validation.InclusiveRangeError(0, math.MaxInt32))
	}
}

func volumeAttachmentCells(a *storagev1.VolumeAttachment, env resource.CellEnv) []any {
	return []any{
		a.Name, a.Spec.Attacher, column.Deref(a.Spec.Source.PersistentVolumeName, ""), a.Spec.NodeName,
		a.Status.Attached, env.Age(a.CreationTimestamp),
	}
}
