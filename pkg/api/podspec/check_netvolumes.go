// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkNetworkSource judges the sources that the older in-tree drivers had: what
// each of them cannot do without.
func (c *check) checkNetworkSource(v *corev1.Volume, one func(string, bool, func(*field.Path))) {
	require := func(at *field.Path, fields map[string]string, order ...string) {
		for _, name := range order {
			if fields[name] == "" {
				c.Required(at.Child(name), "")
			}
		}
	}
	one("nfs", v.NFS != nil, func(at *field.Path) { c.checkNFS(v.NFS, at) })
	one("iscsi", v.ISCSI != nil, func(at *field.Path) {
		require(at, map[string]string{"targetPortal": v.ISCSI.TargetPortal, "iqn": v.ISCSI.IQN}, "targetPortal", "iqn")
	})
	one("glusterfs", v.Glusterfs != nil, func(at *field.Path) {
		require(at, map[string]string{"endpoints": v.Glusterfs.EndpointsName, "path": v.Glusterfs.Path}, "endpoints", "path")
	})
	one("rbd", v.RBD != nil, func(at *field.Path) {
		if len(v.RBD.CephMonitors) == 0 {
			c.Required(at.Child("monitors"), "")
		}
		require(at, map[string]string{"image": v.RBD.RBDImage}, "image")
	})
	one("cinder", v.Cinder != nil, func(at *field.Path) {
		require(at, map[string]string{"volumeID": v.Cinder.VolumeID}, "volumeID")
	})
	one("cephFS", v.CephFS != nil, func(at *field.Path) {
		if len(v.CephFS.Monitors) == 0 {
			c.Required(at.Child("monitors"), "")
		}
	})
	one("flexVolume", v.FlexVolume != nil, func(at *field.Path) {
		require(at, map[string]string{"driver": v.FlexVolume.Driver}, "driver")
	})
	one("azureFile", v.AzureFile != nil, func(at *field.Path) {
		require(at, map[string]string{"secretName": v.AzureFile.SecretName, "shareName": v.AzureFile.ShareName}, "secretName", "shareName")
	})
	one("vsphereVolume", v.VsphereVolume != nil, func(at *field.Path) {
		require(at, map[string]string{"volumePath": v.VsphereVolume.VolumePath}, "volumePath")
	})
	one("gcePersistentDisk", v.GCEPersistentDisk != nil, func(at *field.Path) {
		require(at, map[string]string{"pdName": v.GCEPersistentDisk.PDName}, "pdName")
	})
	one("awsElasticBlockStore", v.AWSElasticBlockStore != nil, func(at *field.Path) {
		require(at, map[string]string{"volumeID": v.AWSElasticBlockStore.VolumeID}, "volumeID")
	})
	one("gitRepo", v.GitRepo != nil, func(at *field.Path) {
		require(at, map[string]string{"repository": v.GitRepo.Repository}, "repository")
		c.checkDescends(v.GitRepo.Directory, at.Child("directory"))
	})
	one("azureDisk", v.AzureDisk != nil, func(at *field.Path) {
		require(at, map[string]string{"diskName": v.AzureDisk.DiskName, "diskURI": v.AzureDisk.DataDiskURI}, "diskName", "diskURI")
	})
	c.checkRareSource(v, one)
}

// checkRareSource accepts the remaining sources as they are.
func (c *check) checkRareSource(v *corev1.Volume, one func(string, bool, func(*field.Path))) {
	accept := func(*field.Path) {}
	one("flocker", v.Flocker != nil, accept)
	one("quobyte", v.Quobyte != nil, accept)
	one("fc", v.FC != nil, accept)
	one("photonPersistentDisk", v.PhotonPersistentDisk != nil, accept)
	one("portworxVolume", v.PortworxVolume != nil, accept)
	one("storageos", v.StorageOS != nil, accept)
	one("scaleIO", v.ScaleIO != nil, accept)
}

func (c *check) checkNFS(nfs *corev1.NFSVolumeSource, at *field.Path) {
	if nfs.Server == "" {
		c.Required(at.Child("server"), "")
	}
	if nfs.Path == "" {
		c.Required(at.Child("path"), "")
	}
	if !path.IsAbs(nfs.Path) {
		c.Invalid(at.Child("path"), nfs.Path, "must be an absolute path")
	}
}
