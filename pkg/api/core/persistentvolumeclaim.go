// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// persistentVolumeClaimRow declares persistentvolumeclaims.
func persistentVolumeClaimRow() *resource.Row {
	parts := strategy.Parts[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimSpec, corev1.PersistentVolumeClaimStatus](func(o *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaimSpec, *corev1.PersistentVolumeClaimStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Kind[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList]{
		Group: "", Version: "v1", Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true,
		ShortNames: []string{"pvc"},

		Default:                  defaultPersistentVolumeClaim,
		PrepareCreate:            preparePersistentVolumeClaimCreate,
		PrepareUpdate:            preparePersistentVolumeClaimUpdate,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		ReturnDeleted:            true,

		Subresources: []resource.Sub[corev1.PersistentVolumeClaim]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec},
		},
	}.Row()
}
