// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestEveryPluginHasOneDriver checks that the three functions return the same driver for a plugin:
// by its provisioner, by a pod's volume, and by a persistent volume.
func TestEveryPluginHasOneDriver(t *testing.T) {
	for provisioner, tc := range map[string]struct {
		inline     corev1.VolumeSource
		persistent corev1.PersistentVolumeSource
	}{
		"kubernetes.io/aws-ebs": {corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{}},
			corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{}}},
		"kubernetes.io/azure-disk": {corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{}},
			corev1.PersistentVolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{}}},
		"kubernetes.io/azure-file": {corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{}},
			corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{}}},
		"kubernetes.io/cinder": {corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{}},
			corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{}}},
		"kubernetes.io/gce-pd": {corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{}},
			corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{}}},
		"kubernetes.io/portworx-volume": {corev1.VolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{}},
			corev1.PersistentVolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{}}},
		"kubernetes.io/vsphere-volume": {corev1.VolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{}},
			corev1.PersistentVolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{}}},
	} {
		want := ProvisionerDriver(provisioner)
		if got := VolumeDriver(&tc.inline); got != want || want == "" {
			t.Errorf("%s is provisioned by %q, mounted by %q", provisioner, want, got)
		}
		if got := PersistentVolumeDriver(&tc.persistent); got != want {
			t.Errorf("%s is provisioned by %q, mounted by %q", provisioner, want, got)
		}
	}
	if got := ProvisionerDriver("x") + VolumeDriver(&corev1.VolumeSource{}) +
		PersistentVolumeDriver(&corev1.PersistentVolumeSource{}); got != "" {
		t.Errorf("for none: %q", got)
	}
}
