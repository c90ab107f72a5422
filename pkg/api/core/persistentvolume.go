// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/strategy"
)

// persistentVolumeRow declares persistentvolumes.
func persistentVolumeRow() *resource.Row {
	parts := strategy.Parts[corev1.PersistentVolume, corev1.PersistentVolumeSpec, corev1.PersistentVolumeStatus](func(o *corev1.PersistentVolume) (*corev1.PersistentVolumeSpec, *corev1.PersistentVolumeStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Kind[corev1.PersistentVolume, corev1.PersistentVolumeList]{
		Group: "", Version: "v1", Resource: "persistentvolumes", Kind: "PersistentVolume",
		ShortNames: []string{"pv"},

		Default:                  defaultPersistentVolume,
		PrepareCreate:            preparePersistentVolumeCreate,
		PrepareUpdate:            parts.KeepStatus,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		ReturnDeleted:            true,

		Subresources: []resource.Sub[corev1.PersistentVolume]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: preparePersistentVolumeStatus},
		},
	}.Row()
}
