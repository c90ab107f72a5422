// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

// ValidateClaimSpec validates the specification of a volume claim.
func ValidateClaimSpec(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	var r report.Report
	modes := path.Child("accessModes")
	if len(spec.AccessModes) == 0 {
		r.Required(modes, "at least 1 access mode is required")
	}
	r.Selector(path.Child("selector"), spec.Selector)
	checkAccessModes(&r, spec.AccessModes, modes)
	storage, ok := spec.Resources.Requests[corev1.ResourceStorage]
	at := path.Child("resources").Key(string(corev1.ResourceStorage))
	if !ok {
		r.Required(at, "")
	} else {
		if storage.Sign() > 0 {
			r.Add(ValidateQuantity(corev1.ResourceStorage, storage, at)...)
		} else {
			r.Invalid(at, storage.String(), "must be greater than zero")
		}
	}
	if name := spec.StorageClassName; name != nil && *name != "" {
		r.Each(path.Child("storageClassName"), *name, naming.NameIsDNSSubdomain(*name, false))
	}
	if mode := spec.VolumeMode; mode != nil {
		report.OneOf(&r, path.Child("volumeMode"), *mode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	}
	if spec.DataSource != nil {
		checkDataSource(&r, spec.DataSource.APIGroup, spec.DataSource.Kind, spec.DataSource.Name, path.Child("dataSource"))
	}
	if ref := spec.DataSourceRef; ref != nil {
		checkDataSource(&r, ref.APIGroup, ref.Kind, ref.Name, path.Child("dataSourceRef"))
		if ref.Namespace != nil && *ref.Namespace != "" {
			r.Each(path.Child("dataSourceRef", "namespace"), *ref.Namespace, naming.NameIsDNSLabel(*ref.Namespace, false))
		}
		checkSameSource(&r, spec, path)
	}
	if name := spec.VolumeAttributesClassName; name != nil && *name != "" {
		r.Each(path.Child("volumeAttributesClassName"), *name, naming.NameIsDNSSubdomain(*name, false))
	}
	return r.Errors
}

func checkSameSource(r *report.Report, spec *corev1.PersistentVolumeClaimSpec, path *field.Path) {
	ref := spec.DataSourceRef
	if ref.Namespace != nil && *ref.Namespace != "" {
		if spec.DataSource != nil {
			r.Invalid(path, path.Child("dataSource"), "may not be specified when dataSourceRef.namespace is specified")
		}
		return
	}
	if spec.DataSource == nil {
		return
	}
	same := corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	if !equality.Semantic.DeepEqual(*spec.DataSource, same) {
		r.Invalid(path, path.Child("dataSource"), "must match dataSourceRef")
	}
}

func checkDataSource(r *report.Report, group *string, kind, name string, path *field.Path) {
	if name == "" {
		r.Required(path.Child("name"), "")
	}
	if kind == "" {
		r.Required(path.Child("kind"), "")
	}
	apiGroup := ""
	if group != nil {
		apiGroup = *group
	}
	if apiGroup == "" && kind != "PersistentVolumeClaim" {
		r.Invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
	}
	if apiGroup != "" {
		r.Each(path.Child("apiGroup"), apiGroup, naming.IsDNS1123Subdomain(apiGroup))
	}
}

// ValidateAccessModes validates the access modes of a volume. At least one access mode is required.
func ValidateAccessModes(r *report.Report, modes []corev1.PersistentVolumeAccessMode, path *field.Path) {
	if len(modes) == 0 {
		r.Required(path, "")
	}
	checkAccessModes(r, modes, path)
}

func checkAccessModes(r *report.Report, modes []corev1.PersistentVolumeAccessMode, path *field.Path) {
	found := sets.New[corev1.PersistentVolumeAccessMode]()
	for _, mode := range modes {
		report.OneOf(r, path, mode, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		found.Insert(mode)
	}
	if found.Has(corev1.ReadWriteOncePod) && len(found) > 1 {
		r.Forbidden(path, "may not use ReadWriteOncePod with other access modes")
	}
}
