// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/report"
)

// checkVolumes validates the volumes of the pod and puts the valid ones into c.volumes.
func (c *check) checkVolumes(path *field.Path) {
	made := sets.New[string]()
	if c.meta != nil && c.meta.Name != "" {
		for i := range c.spec.Volumes {
			if v := &c.spec.Volumes[i]; v.Ephemeral != nil {
				made.Insert(c.meta.Name + "-" + v.Name)
			}
		}
	}
	for i := range c.spec.Volumes {
		volume, at := &c.spec.Volumes[i], path.Index(i)
		before := len(c.Errors)
		c.checkSource(volume, at)
		c.RequiredLabel(at.Child("name"), volume.Name)
		if _, ok := c.volumes[volume.Name]; ok {
			c.Duplicate(at.Child("name"), volume.Name)
		}
		if len(c.Errors) == before {
			c.volumes[volume.Name] = &volume.VolumeSource
		}
		if claim := volume.PersistentVolumeClaim; claim != nil && made.Has(claim.ClaimName) {
			c.Invalid(at.Child("persistentVolumeClaim", "claimName"), claim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume")
		}
	}
}

// checkSource validates the source of a volume. It checks the possible sources in the order of
// Kubernetes, because only the first one that is set is validated.
func (c *check) checkSource(v *corev1.Volume, path *field.Path) {
	s := &Sources{Report: &c.Report, Path: path}
	s.One("emptyDir", v.EmptyDir != nil, func(at *field.Path) {
		if limit := v.EmptyDir.SizeLimit; limit != nil && limit.Sign() < 0 {
			c.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")
		}
	})
	s.One("hostPath", v.HostPath != nil, func(at *field.Path) { c.Add(ValidateHostPath(v.HostPath, at)...) })
	s.One("gitRepo", v.GitRepo != nil, func(at *field.Path) {
		s.need(at, "repository", v.GitRepo.Repository)
		c.checkDescends(v.GitRepo.Directory, at.Child("directory"))
	})
	s.GCE(v.GCEPersistentDisk)
	s.EBS(v.AWSElasticBlockStore)
	s.One("secret", v.Secret != nil, func(at *field.Path) {
		s.need(at, "secretName", v.Secret.SecretName)
		c.checkMode(v.Secret.DefaultMode, at.Child("defaultMode"))
		c.checkItems(v.Secret.Items, at.Child("items"))
	})
	s.NFS(v.NFS)
	c.checkISCSI(s, v, path)
	s.One("glusterfs", v.Glusterfs != nil, func(at *field.Path) {
		s.need(at, "endpoints", v.Glusterfs.EndpointsName, "path", v.Glusterfs.Path)
	})
	s.Flocker(v.Flocker)
	s.One("persistentVolumeClaim", v.PersistentVolumeClaim != nil, func(at *field.Path) {
		s.need(at, "claimName", v.PersistentVolumeClaim.ClaimName)
	})
	s.RBD(v.RBD != nil, func() []string { return v.RBD.CephMonitors }, func() string { return v.RBD.RBDImage })
	s.One("cinder", v.Cinder != nil, func(at *field.Path) {
		s.need(at, "volumeID", v.Cinder.VolumeID)
		s.Secret(at, v.Cinder.SecretRef)
	})
	s.CephFS(v.CephFS != nil, func() []string { return v.CephFS.Monitors })
	s.Quobyte(v.Quobyte)
	// The misspelled name is in Kubernetes' error message, too.
	s.oneAs("downwarAPI", "downwardAPI", v.DownwardAPI != nil, func(at *field.Path) {
		c.checkMode(v.DownwardAPI.DefaultMode, at.Child("defaultMode"))
		for i := range v.DownwardAPI.Items {
			c.checkDownwardFile(&v.DownwardAPI.Items[i], at)
		}
	})
	s.FC(v.FC)
	s.One("flexVolume", v.FlexVolume != nil,
		func(at *field.Path) { s.Flex(at, v.FlexVolume.Driver, v.FlexVolume.Options) })
	c.checkLaterSource(s, v, path)
	if !s.Found {
		c.Required(path, "must specify a volume type")
	}
}

// checkLaterSource validates the second half of the possible sources.
func (c *check) checkLaterSource(s *Sources, v *corev1.Volume, path *field.Path) {
	s.One("configMap", v.ConfigMap != nil, func(at *field.Path) {
		s.need(at, "name", v.ConfigMap.Name)
		c.checkMode(v.ConfigMap.DefaultMode, at.Child("defaultMode"))
		c.checkItems(v.ConfigMap.Items, at.Child("items"))
	})
	s.One("azureFile", v.AzureFile != nil, func(at *field.Path) {
		s.need(at, "secretName", v.AzureFile.SecretName, "shareName", v.AzureFile.ShareName)
	})
	s.Vsphere(v.VsphereVolume)
	s.Photon(v.PhotonPersistentDisk)
	s.Portworx(v.PortworxVolume)
	s.AzureDisk(v.AzureDisk)
	s.One("storageos", v.StorageOS != nil, func(at *field.Path) {
		s.StorageOS(at, v.StorageOS.VolumeName, v.StorageOS.VolumeNamespace)
		s.Secret(at, v.StorageOS.SecretRef)
	})
	s.One("projected", v.Projected != nil, func(at *field.Path) {
		c.checkMode(v.Projected.DefaultMode, at.Child("defaultMode"))
		c.checkProjected(v.Projected, at)
	})
	s.One("scaleIO", v.ScaleIO != nil, func(at *field.Path) {
		s.ScaleIO(at, v.ScaleIO.Gateway, v.ScaleIO.System, v.ScaleIO.VolumeName)
	})
	s.One("csi", v.CSI != nil, func(at *field.Path) { c.checkCSI(v.CSI, at) })
	s.One("ephemeral", v.Ephemeral != nil, func(at *field.Path) { c.checkEphemeralVolume(v, at, path) })
	s.One("image", v.Image != nil, func(at *field.Path) {
		if v.Image.Reference == "" && !unnamedImages(c.old) {
			c.Required(at.Child("reference"), "")
		}
		c.checkPullPolicy(v.Image.PullPolicy, at.Child("pullPolicy"))
	})
}

// unnamedImages reports whether a volume of old is an image without a reference. Older versions
// accepted such templates, and updates must not fail because of them.
func unnamedImages(old *corev1.PodSpec) bool {
	return old != nil && slices.ContainsFunc(old.Volumes, func(v corev1.Volume) bool {
		return v.Image != nil && v.Image.Reference == ""
	})
}

func (c *check) checkISCSI(s *Sources, v *corev1.Volume, path *field.Path) {
	s.One("iscsi", v.ISCSI != nil, func(at *field.Path) {
		s.need(at, "targetPortal", v.ISCSI.TargetPortal)
		s.ISCSI(at, v.ISCSI.IQN, v.ISCSI.Lun, (v.ISCSI.DiscoveryCHAPAuth || v.ISCSI.SessionCHAPAuth) &&
			v.ISCSI.SecretRef == nil, AnyISCSIPrefix)
		s.ISCSIInitiator(at, v.ISCSI.InitiatorName, AnyISCSIPrefix)
	})
	if v.ISCSI != nil && !ISCSIFits(v.Name, v.ISCSI.TargetPortal, v.ISCSI.InitiatorName) {
		c.Invalid(path.Child("name"), v.Name, ISCSITooLong)
	}
}

// ValidateNoBackstep reports a path with an element "..".
func ValidateNoBackstep(target string, path *field.Path) field.ErrorList {
	if !hasBackstep(target) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, target, "must not contain '..'")}
}

// ValidateHostPath validates the path and type of a hostPath volume.
func ValidateHostPath(h *corev1.HostPathVolumeSource, path *field.Path) field.ErrorList {
	var r report.Report
	if h.Path == "" {
		r.Required(path.Child("path"), "")
		return r.Errors
	}
	r.Add(ValidateNoBackstep(h.Path, path.Child("path"))...)
	if h.Type != nil {
		report.OneOf(&r, path.Child("type"), *h.Type,
			corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
			corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
	}
	return r.Errors
}

func (c *check) checkMode(mode *int32, path *field.Path) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.Invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

func (c *check) checkItems(items []corev1.KeyToPath, path *field.Path) {
	for i := range items {
		c.checkItem(&items[i], path.Index(i))
	}
}

func (c *check) checkItem(item *corev1.KeyToPath, at *field.Path) {
	if item.Key == "" {
		c.Required(at.Child("key"), "")
	}
	if item.Path == "" {
		c.Required(at.Child("path"), "")
	}
	c.checkFileName(item.Path, at.Child("path"))
	c.checkMode(item.Mode, at.Child("mode"))
}

func (c *check) checkDownwardFile(file *corev1.DownwardAPIVolumeFile, path *field.Path) {
	if file.Path == "" {
		c.Required(path.Child("path"), "")
	}
	c.checkFileName(file.Path, path.Child("path"))
	switch {
	case file.FieldRef != nil:
		c.checkFieldRef(file.FieldRef, fieldsForFiles(), path.Child("fieldRef"))
		if file.ResourceFieldRef != nil {
			c.Invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case file.ResourceFieldRef != nil:
		c.checkResourceRef(file.ResourceFieldRef, true, path.Child("resourceFieldRef"))
	default:
		c.Required(path, "one of fieldRef and resourceFieldRef is required")
	}
	c.checkMode(file.Mode, path.Child("mode"))
}

func (c *check) checkCSI(csi *corev1.CSIVolumeSource, at *field.Path) {
	c.Add(ValidateDriverName(csi.Driver, at.Child("driver"))...)
	if ref := csi.NodePublishSecretRef; ref != nil {
		if ref.Name == "" {
			c.Required(at.Child("nodePublishSecretRef", "name"), "")
		} else {
			c.Each(at.Child("name"), ref.Name, naming.NameIsDNSSubdomain(ref.Name, false))
		}
	}
}

const maxDriverName = 63

// ValidateDriverName validates the name of a CSI driver.
func ValidateDriverName(name string, path *field.Path) field.ErrorList {
	var r report.Report
	if name == "" {
		r.Required(path, "")
		return r.Errors
	}
	if len(name) > maxDriverName {
		r.TooLong(path, maxDriverName)
	}
	r.Each(path, name, naming.IsDNS1123Subdomain(strings.ToLower(name)))
	return r.Errors
}

func (c *check) checkEphemeralVolume(v *corev1.Volume, at, volume *field.Path) {
	template := v.Ephemeral.VolumeClaimTemplate
	if template == nil {
		c.Required(at.Child("volumeClaimTemplate"), "")
	} else {
		path := at.Child("volumeClaimTemplate")
		c.TemplateMeta(path.Child("metadata"), &template.ObjectMeta)
		c.Add(ValidateClaimSpec(&template.Spec, path.Child("spec"))...)
	}
	if c.meta == nil || c.meta.Name == "" || v.Name == "" {
		return
	}
	name := c.meta.Name + "-" + v.Name
	for _, reason := range naming.NameIsDNSSubdomain(name, false) {
		c.Invalid(volume.Child("name"), v.Name, fmt.Sprintf("PVC name %q: %v", name, reason))
	}
}

func (c *check) checkMounts(container *corev1.Container, at *field.Path) {
	points := sets.New[string]()
	devices := container.VolumeDevices
	for i := range container.VolumeMounts {
		mount, here := &container.VolumeMounts[i], at.Index(i)
		if mount.Name == "" {
			c.Required(here.Child("name"), "")
		}
		if _, ok := c.volumes[mount.Name]; !ok {
			c.NotFound(here.Child("name"), mount.Name)
		}
		if mount.MountPath == "" {
			c.Required(here.Child("mountPath"), "")
		}
		if points.Has(mount.MountPath) {
			c.Invalid(here.Child("mountPath"), mount.MountPath, "must be unique")
		}
		points.Insert(mount.MountPath)
		if slices.ContainsFunc(devices, func(d corev1.VolumeDevice) bool { return d.Name == mount.Name }) {
			c.Invalid(here.Child("name"), mount.Name, "must not already exist in volumeDevices")
		}
		if slices.ContainsFunc(devices, func(d corev1.VolumeDevice) bool { return d.DevicePath == mount.MountPath }) {
			c.Invalid(here.Child("mountPath"), mount.MountPath, "must not already exist as a path in volumeDevices")
		}
		c.checkMountOptions(container, mount, at, here)
	}
}

// checkMountOptions validates the options of a mount. The argument here is the path of the mount,
// and the argument at is that of the list of mounts. As in Kubernetes, most errors have the path of
// the list.
func (c *check) checkMountOptions(container *corev1.Container, mount *corev1.VolumeMount, at, here *field.Path) {
	if mount.SubPath != "" {
		c.checkDescends(mount.SubPath, at.Child("subPath"))
	}
	if mount.SubPathExpr != "" {
		if mount.SubPath != "" {
			c.Invalid(here.Child("subPathExpr"), mount.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
		}
		c.checkDescends(mount.SubPathExpr, at.Child("subPathExpr"))
	}
	if p := mount.MountPropagation; p != nil {
		report.OneOf(&c.Report, at.Child("mountPropagation"), *p,
			corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
		privileged := container.SecurityContext != nil && container.SecurityContext.Privileged != nil &&
			*container.SecurityContext.Privileged
		if *p == corev1.MountPropagationBidirectional && !privileged {
			c.Forbidden(at.Child("mountPropagation"),
				"Bidirectional mount propagation is available only to privileged containers")
		}
	}
	mode, readOnly := mount.RecursiveReadOnly, at.Child("recursiveReadOnly")
	if mode == nil || *mode == corev1.RecursiveReadOnlyDisabled {
		return
	}
	if *mode != corev1.RecursiveReadOnlyEnabled && *mode != corev1.RecursiveReadOnlyIfPossible {
		report.OneOf(&c.Report, readOnly, *mode,
			corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)
		return
	}
	if !mount.ReadOnly {
		c.Forbidden(readOnly, "may only be specified when readOnly is true")
	}
	if mount.MountPropagation != nil && *mount.MountPropagation != corev1.MountPropagationNone {
		c.Forbidden(readOnly, "may only be specified when mountPropagation is None or not specified")
	}
}

func (c *check) checkDevices(container *corev1.Container, at *field.Path) {
	names, paths := sets.New[string](), sets.New[string]()
	for i := range container.VolumeDevices {
		device, here := &container.VolumeDevices[i], at.Index(i)
		source, found := c.volumes[device.Name]
		if device.Name == "" {
			c.Required(here.Child("name"), "")
		}
		if names.Has(device.Name) {
			c.Invalid(here.Child("name"), device.Name, "must be unique")
		}
		if !found {
			c.NotFound(here.Child("name"), device.Name)
		} else if source.PersistentVolumeClaim == nil && source.Ephemeral == nil {
			c.Invalid(here.Child("name"), device.Name,
				"can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		if device.DevicePath == "" {
			c.Required(here.Child("devicePath"), "")
		}
		if paths.Has(device.DevicePath) {
			c.Invalid(here.Child("devicePath"), device.DevicePath, "must be unique")
		}
		if hasBackstep(device.DevicePath) {
			c.Invalid(here.Child("devicePath"), device.DevicePath, "can not contain backsteps ('..')")
		} else {
			paths.Insert(device.DevicePath)
		}
		mounts := container.VolumeMounts
		if slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == device.Name }) {
			c.Invalid(here.Child("name"), device.Name, "must not already exist in volumeMounts")
		}
		if slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return m.MountPath == device.DevicePath }) {
			c.Invalid(here.Child("devicePath"), device.DevicePath, "must not already exist as a path in volumeMounts")
		}
		if device.Name != "" {
			names.Insert(device.Name)
		}
	}
}

// checkDescends requires a relative path without elements "..".
func (c *check) checkDescends(target string, at *field.Path) {
	if path.IsAbs(target) {
		c.Invalid(at, target, "must be a relative path")
	}
	c.checkNoBacksteps(target, at)
}

func (c *check) checkNoBacksteps(target string, at *field.Path) {
	if hasBackstep(target) {
		c.Invalid(at, target, "must not contain '..'")
	}
}

func hasBackstep(target string) bool { return slices.Contains(strings.Split(target, "/"), "..") }

// checkFileName validates the path of a file in a volume. The name must not begin with two dots,
// because the kubelet uses such names itself.
func (c *check) checkFileName(target string, at *field.Path) {
	c.checkDescends(target, at)
	if strings.HasPrefix(target, "..") && !strings.HasPrefix(target, "../") {
		c.Invalid(at, target, "must not start with '..'")
	}
}
