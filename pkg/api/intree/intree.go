// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package intree maps the in-tree volume plugins of old Kubernetes releases to the CSI drivers
// that replaced them.
package intree

import corev1 "k8s.io/api/core/v1"

const (
	awsEBS        = "ebs.csi.aws.com"
	azureDisk     = "disk.csi.azure.com"
	azureFile     = "file.csi.azure.com"
	cinder        = "cinder.csi.openstack.org"
	gcePD         = "pd.csi.storage.gke.io"
	portworx      = "pxd.portworx.com"
	vSphereVolume = "csi.vsphere.vmware.com"
)

// ProvisionerDriver returns the name of the CSI driver that replaces an in-tree provisioner. It
// returns "" if no driver replaces it.
func ProvisionerDriver(provisioner string) string {
	return map[string]string{
		"kubernetes.io/aws-ebs": awsEBS, "kubernetes.io/azure-disk": azureDisk,
		"kubernetes.io/azure-file": azureFile, "kubernetes.io/cinder": cinder,
		"kubernetes.io/gce-pd": gcePD, "kubernetes.io/portworx-volume": portworx,
		"kubernetes.io/vsphere-volume": vSphereVolume,
	}[provisioner]
}

// VolumeDriver returns the name of the CSI driver that replaces the plugin of a pod's volume. It
// returns "" if no driver replaces it.
func VolumeDriver(v *corev1.VolumeSource) string {
	switch {
	case v.AWSElasticBlockStore != nil:
		return awsEBS
	case v.AzureDisk != nil:
		return azureDisk
	case v.AzureFile != nil:
		return azureFile
	case v.Cinder != nil:
		return cinder
	case v.GCEPersistentDisk != nil:
		return gcePD
	case v.PortworxVolume != nil:
		return portworx
	case v.VsphereVolume != nil:
		return vSphereVolume
	}
	return ""
}

// PersistentVolumeDriver returns the name of the CSI driver that replaces the plugin of a
// persistent volume. It returns "" if no driver replaces it.
func PersistentVolumeDriver(v *corev1.PersistentVolumeSource) string {
	switch {
	case v.AWSElasticBlockStore != nil:
		return awsEBS
	case v.AzureDisk != nil:
		return azureDisk
	case v.AzureFile != nil:
		return azureFile
	case v.Cinder != nil:
		return cinder
	case v.GCEPersistentDisk != nil:
		return gcePD
	case v.PortworxVolume != nil:
		return portworx
	case v.VsphereVolume != nil:
		return vSphereVolume
	}
	return ""
}
