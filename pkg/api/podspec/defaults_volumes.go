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
	// A volume of two sources is refused, in words that show both as they are filled.
	if v.HostPath != nil {
		DefaultHostPath(v.HostPath)
	}
	if v.Secret != nil {
		unset.Point(&v.Secret.DefaultMode, fileMode)
	}
	if v.ConfigMap != nil {
		unset.Point(&v.ConfigMap.DefaultMode, fileMode)
	}
	if v.DownwardAPI != nil {
		unset.Point(&v.DownwardAPI.DefaultMode, fileMode)
		defaultDownward(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		defaultProjected(v.Projected)
	}
	if v.Image != nil {
		defaultPullPolicy(&v.Image.PullPolicy, v.Image.Reference)
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
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
	if s := v.ISCSI; s != nil {
		unset.Fill(&s.ISCSIInterface, iscsiInterface)
	}
	if s := v.RBD; s != nil {
		defaultRBD(&s.RBDPool, &s.RadosUser, &s.Keyring)
	}
	if v.AzureDisk != nil {
		defaultAzureDisk(v.AzureDisk)
	}
	if s := v.ScaleIO; s != nil {
		defaultScaleIO(&s.StorageMode, &s.FSType)
	}
}

// DefaultPersistentSource fills the source of a persistent volume.
func DefaultPersistentSource(s *corev1.PersistentVolumeSource) {
	if s.HostPath != nil {
		DefaultHostPath(s.HostPath)
	}
	if s := s.ISCSI; s != nil {
		unset.Fill(&s.ISCSIInterface, iscsiInterface)
	}
	if s := s.RBD; s != nil {
		defaultRBD(&s.RBDPool, &s.RadosUser, &s.Keyring)
	}
	if s.AzureDisk != nil {
		defaultAzureDisk(s.AzureDisk)
	}
	if s := s.ScaleIO; s != nil {
		defaultScaleIO(&s.StorageMode, &s.FSType)
	}
}

func defaultRBD(pool, user, keyring *string) {
	unset.Fill(pool, rbdPool)
	unset.Fill(user, rbdUser)
	unset.Fill(keyring, rbdKeyring)
}

func defaultScaleIO(mode, filesystem *string) {
	unset.Fill(mode, scaleIOStorage)
	unset.Fill(filesystem, scaleIOFilesystem)
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
