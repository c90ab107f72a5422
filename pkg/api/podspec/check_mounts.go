// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
)

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

// checkMountOptions names some fields without the index of their mount, as
// Kubernetes does.
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
		privileged := container.SecurityContext != nil && container.SecurityContext.Privileged != nil && *container.SecurityContext.Privileged
		if *p == corev1.MountPropagationBidirectional && !privileged {
			c.Forbidden(at.Child("mountPropagation"), "Bidirectional mount propagation is available only to privileged containers")
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
			c.Invalid(here.Child("name"), device.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
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

// checkDescends judges a path that must stay below where it starts.
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

// checkFileName judges the path of a file in a volume; names that begin with
// two dots are the kubelet's own.
func (c *check) checkFileName(target string, at *field.Path) {
	c.checkDescends(target, at)
	if strings.HasPrefix(target, "..") && !strings.HasPrefix(target, "../") {
		c.Invalid(at, target, "must not start with '..'")
	}
}
