// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

const (
	defaultClassAnnotation     = "storageclass.kubernetes.io/is-default-class"
	betaDefaultClassAnnotation = "storageclass.beta.kubernetes.io/is-default-class"
)

func storageClassCells(c *storagev1.StorageClass, env resource.CellEnv) []any {
	name := c.Name
	if c.Annotations[defaultClassAnnotation] == "true" || c.Annotations[betaDefaultClassAnnotation] == "true" {
		name += " (default)"
	}
	return []any{
		name, c.Provisioner, column.Deref(c.ReclaimPolicy, "Delete"), column.Deref(c.VolumeBindingMode, "Immediate"),
		c.AllowVolumeExpansion != nil && *c.AllowVolumeExpansion, env.Age(c.CreationTimestamp),
	}
}

func volumeAttributesClassCells(c *storagev1.VolumeAttributesClass, env resource.CellEnv) []any {
	return []any{c.Name, c.DriverName, env.Age(c.CreationTimestamp)}
}

func volumeAttachmentCells(a *storagev1.VolumeAttachment, env resource.CellEnv) []any {
	return []any{
		a.Name, a.Spec.Attacher, column.Deref(a.Spec.Source.PersistentVolumeName, ""), a.Spec.NodeName,
		a.Status.Attached, env.Age(a.CreationTimestamp),
	}
}

func csiNodeCells(n *storagev1.CSINode, env resource.CellEnv) []any {
	return []any{n.Name, int64(len(n.Spec.Drivers)), env.Age(n.CreationTimestamp)}
}

func csiDriverCells(d *storagev1.CSIDriver, env resource.CellEnv) []any {
	spec := &d.Spec
	modes := make([]string, len(spec.VolumeLifecycleModes))
	for i, m := range spec.VolumeLifecycleModes {
		modes[i] = string(m)
	}
	tokens := column.Unset
	if spec.TokenRequests != nil {
		audiences := make([]string, len(spec.TokenRequests))
		for i, t := range spec.TokenRequests {
			audiences[i] = t.Audience
		}
		tokens = strings.Join(audiences, ",")
	}
	isTrue := func(b *bool) bool { return b != nil && *b }
	return []any{
		d.Name, spec.AttachRequired == nil || *spec.AttachRequired, isTrue(spec.PodInfoOnMount), isTrue(spec.StorageCapacity),
		tokens, isTrue(spec.RequiresRepublish), column.OrNone(strings.Join(modes, ",")), env.Age(d.CreationTimestamp),
	}
}
