// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

// ValidateVolumeSource judges what the volume of that name is of; at is where spec is.
func ValidateVolumeSource(r *report.Report, name string, spec *corev1.PersistentVolumeSpec, at *field.Path) {
	v, s := &spec.PersistentVolumeSource, &podspec.Sources{Report: r, Path: at}
	s.One("hostPath", v.HostPath != nil, func(p *field.Path) { r.Add(podspec.ValidateHostPath(v.HostPath, p)...) })
	s.GCE(v.GCEPersistentDisk)
	s.EBS(v.AWSElasticBlockStore)
	s.One("glusterfs", v.Glusterfs != nil, func(p *field.Path) { checkGlusterfs(r, v.Glusterfs, p) })
	s.Flocker(v.Flocker)
	s.NFS(v.NFS)
	s.RBD(v.RBD != nil, func() []string { return v.RBD.CephMonitors }, func() string { return v.RBD.RBDImage })
	s.Quobyte(v.Quobyte)
	s.CephFS(v.CephFS != nil, func() []string { return v.CephFS.Monitors })
	s.One("iscsi", v.ISCSI != nil, func(p *field.Path) { checkISCSI(s, name, v.ISCSI, p) })
	s.One("cinder", v.Cinder != nil, func(p *field.Path) {
		require(r, p.Child("volumeID"), v.Cinder.VolumeID)
		if ref := v.Cinder.SecretRef; ref != nil {
			s.NamespacedSecret(p, ref.Name, ref.Namespace)
		}
	})
	s.FC(v.FC)
	if v.FlexVolume != nil { // may be a second one
		s.Found = true
		s.Flex(at.Child("flexVolume"), v.FlexVolume.Driver, v.FlexVolume.Options)
	}
	s.One("azureFile", v.AzureFile != nil, func(p *field.Path) {
		require(r, p.Child("secretName"), v.AzureFile.SecretName)
		require(r, p.Child("shareName"), v.AzureFile.ShareName)
		if namespace := v.AzureFile.SecretNamespace; namespace != nil {
			require(r, p.Child("secretNamespace"), *namespace)
		}
	})
	s.Vsphere(v.VsphereVolume)
	s.Photon(v.PhotonPersistentDisk)
	s.Portworx(v.PortworxVolume)
	s.AzureDisk(v.AzureDisk)
	s.One("scaleIO", v.ScaleIO != nil, func(p *field.Path) {
		s.ScaleIO(p, v.ScaleIO.Gateway, v.ScaleIO.System, v.ScaleIO.VolumeName)
	})
	s.One("local", v.Local != nil, func(p *field.Path) {
		require(r, p.Child("path"), v.Local.Path)
		r.Add(podspec.ValidateNoBackstep(v.Local.Path, p.Child("path"))...)
		if spec.NodeAffinity == nil {
			r.Required(at.Child("nodeAffinity"), "Local volume requires node affinity")
		}
	})
	s.One("storageos", v.StorageOS != nil, func(p *field.Path) {
		s.StorageOS(p, v.StorageOS.VolumeName, v.StorageOS.VolumeNamespace)
		if ref := v.StorageOS.SecretRef; ref != nil {
			s.NamespacedSecret(p, ref.Name, ref.Namespace)
		}
	})
	s.One("csi", v.CSI != nil, func(p *field.Path) { checkCSISource(r, v.CSI, p) })
	if !s.Found {
		r.Required(at, "must specify a volume type")
	}
	if v.HostPath != nil && path.Clean(v.HostPath.Path) == "/" && spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		r.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
	}
}

func require(r *report.Report, path *field.Path, value string) {
	if value == "" {
		r.Required(path, "")
	}
}

func checkGlusterfs(r *report.Report, v *corev1.GlusterfsPersistentVolumeSource, at *field.Path) {
	require(r, at.Child("endpoints"), v.EndpointsName)
	require(r, at.Child("path"), v.Path)
	switch namespace := v.EndpointsNamespace; {
	case namespace == nil:
	case *namespace == "":
		r.Invalid(at.Child("endpointsNamespace"), *namespace, "if the endpointnamespace is set, it must be a valid namespace name")
	default:
		r.Label(at.Child("endpointsNamespace"), *namespace)
	}
}

func checkISCSI(s *podspec.Sources, name string, v *corev1.ISCSIPersistentVolumeSource, at *field.Path) {
	require(s.Report, at.Child("targetPortal"), v.TargetPortal)
	if !podspec.ISCSIFits(name, v.TargetPortal, v.InitiatorName) {
		s.Report.Invalid(at.Child("targetportal"), v.TargetPortal, podspec.ISCSITooLong)
	}
	s.ISCSI(at, v.IQN, v.Lun, (v.DiscoveryCHAPAuth || v.SessionCHAPAuth) && v.SecretRef == nil, podspec.AnyISCSIForm)
	if v.SecretRef != nil {
		require(s.Report, at.Child("secretRef", "name"), v.SecretRef.Name)
	}
	s.ISCSIInitiator(at, v.InitiatorName, podspec.AnyISCSIForm)
}

func checkCSISource(r *report.Report, v *corev1.CSIPersistentVolumeSource, at *field.Path) {
	r.Add(podspec.ValidateDriverName(v.Driver, at.Child("driver"))...)
	require(r, at.Child("volumeHandle"), v.VolumeHandle)
	for _, s := range []struct {
		name string
		ref  *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", v.ControllerPublishSecretRef}, {"controllerExpandSecretRef", v.ControllerExpandSecretRef},
		{"nodePublishSecretRef", v.NodePublishSecretRef}, {"nodeExpandSecretRef", v.NodeExpandSecretRef},
	} {
		if s.ref == nil {
			continue
		}
		if s.ref.Name == "" {
			r.Required(at.Child(s.name, "name"), "")
		} else {
			r.Subdomain(at.Child(s.name, "name"), s.ref.Name)
		}
		r.RequiredLabel(at.Child(s.name, "namespace"), s.ref.Namespace)
	}
}
