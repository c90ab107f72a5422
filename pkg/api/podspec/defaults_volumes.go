// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/api/unset"
)

const (
	fileMode          int32 = 0o644 // of files from secrets, config maps and the pod's own fields
	tokenLifetime     int64 = 60 * 60
	iscsiInterface          = "default"
	rbdPool                 = "rbd"
	rbdUser                 = "admin"
	rbdKeyring              = "/etc/ceph/keyring"
	scaleIOStorage          = "ThinProvisioned"
	scaleIOFilesystem       = "xfs"
	azureFilesystem         = "ext4"
)

func defaultVolume(v *corev1.Volume) {
	if ptr.AllPtrFieldsNil(&v.VolumeSource) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		DefaultHostPath(v.HostPath)
	case v.Secret != nil:
		unset.Point(&v.Secret.DefaultMode, fileMode)
	case v.ConfigMap != nil:
		unset.Point(&v.ConfigMap.DefaultMode, fileMode)
	case v.DownwardAPI != nil:
		unset.Point(&v.DownwardAPI.DefaultMode, fileMode)
		defaultDownward(v.DownwardAPI.Items)
	case v.Projected != nil:
		defaultProjected(v.Projected)
	case v.Image != nil:
		unset.Fill(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		DefaultClaimSpec(&v.Ephemeral.VolumeClaimTemplate.Spec)
	}
	defaultNetworkVolume(v)
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	unset.Point(&p.DefaultMode, fileMode)
	for i := range p.Sources {
		source := &p.Sources[i]
		if source.DownwardAPI != nil {
			defaultDownward(source.DownwardAPI.Items)
		}
		if source.ServiceAccountToken != nil {
			unset.Point(&source.ServiceAccountToken.ExpirationSeconds, tokenLifetime)
		}
	}
}

func defaultDownward(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		defaultFieldRef(items[i].FieldRef)
	}
}

func defaultNetworkVolume(v *corev1.Volume) {
	switch {
	case v.ISCSI != nil:
		unset.Fill(&v.ISCSI.ISCSIInterface, iscsiInterface)
	case v.RBD != nil:
		unset.Fill(&v.RBD.RBDPool, rbdPool)
		unset.Fill(&v.RBD.RadosUser, rbdUser)
		unset.Fill(&v.RBD.Keyring, rbdKeyring)
	case v.AzureDisk != nil:
		defaultAzureDisk(v.AzureDisk)
	case v.ScaleIO != nil:
		unset.Fill(&v.ScaleIO.StorageMode, scaleIOStorage)
		unset.Fill(&v.ScaleIO.FSType, scaleIOFilesystem)
	}
}

// DefaultPersistentSource fills the source of a persistent volume.
func DefaultPersistentSource(s *corev1.PersistentVolumeSource) {
	switch {
	case s.HostPath != nil:
		DefaultHostPath(s.HostPath)
	case s.ISCSI != nil:
		unset.Fill(&s.ISCSI.ISCSIInterface, iscsiInterface)
	case s.RBD != nil:
		unset.Fill(&s.RBD.RBDPool, rbdPool)
		unset.Fill(&s.RBD.RadosUser, rbdUser)
		unset.Fill(&s.RBD.Keyring, rbdKeyring)
	case s.AzureDisk != nil:
		defaultAzureDisk(s.AzureDisk)
	case s.ScaleIO != nil:
		unset.Fill(&s.ScaleIO.StorageMode, scaleIOStorage)
		unset.Fill(&s.ScaleIO.FSType, scaleIOFilesystem)
	}
}

// DefaultHostPath fills a directory or file of the node.
func DefaultHostPath(h *corev1.HostPathVolumeSource) { unset.Point(&h.Type, corev1.HostPathUnset) }

func defaultAzureDisk(d *corev1.AzureDiskVolumeSource) {
	unset.Point(&d.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	unset.Point(&d.FSType, azureFilesystem)
	unset.Point(&d.ReadOnly, false)
	unset.Point(&d.Kind, corev1.AzureSharedBlobDisk)
}

// DefaultClaimSpec fills the specification of a volume claim, wherever it stands.
func DefaultClaimSpec(spec *corev1.PersistentVolumeClaimSpec) {
	unset.Point(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	Milli(spec.Resources.Limits)
	Milli(spec.Resources.Requests)
}
