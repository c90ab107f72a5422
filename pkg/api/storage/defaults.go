// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

func defaultStorageClass(c *storagev1.StorageClass) {
	unset.Point(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	unset.Point(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	spec := &d.Spec
	unset.Point(&spec.AttachRequired, true)
	unset.Point(&spec.PodInfoOnMount, false)
	unset.Point(&spec.StorageCapacity, false)
	unset.Point(&spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	if len(spec.VolumeLifecycleModes) == 0 {
		spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	unset.Point(&spec.RequiresRepublish, false)
	unset.Point(&spec.SELinuxMount, false)
}

func defaultVolumeAttachment(a *storagev1.VolumeAttachment) {
	if inline := a.Spec.Source.InlineVolumeSpec; inline != nil {
		podspec.Milli(inline.Capacity)
		podspec.DefaultPersistentSource(&inline.PersistentVolumeSource)
	}
}

// prepareCSIDriverCreate drops a field whose feature is off by default. Drivers
// do not start with a generation, but count their changes.
func prepareCSIDriverCreate(_ context.Context, d *storagev1.CSIDriver) {
	d.Spec.PreventPodSchedulingIfMissing = nil
}

func prepareCSIDriverUpdate(_ context.Context, d, old *storagev1.CSIDriver) {
	if old.Spec.PreventPodSchedulingIfMissing == nil {
		d.Spec.PreventPodSchedulingIfMissing = nil
	}
	strategy.Count(d, old, equality.Semantic.DeepEqual(d.Spec, old.Spec))
}
