// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"keelson.dev/keelson/pkg/kubelet/csi"
)

// Drivers mounts the volumes of CSI drivers. *csi.Manager implements it.
type Drivers interface {
	// Mount mounts a volume of a pod. It is idempotent, so the caller may repeat it.
	Mount(ctx context.Context, pod *v1.Pod, v csi.Volume) (csi.Mounted, error)
	// Teardown removes all CSI volumes of a pod.
	Teardown(ctx context.Context, pod types.UID) error
	// Expand grows the file system on a volume to the volume's size.
	Expand(ctx context.Context, pod *v1.Pod, v csi.Volume) error
	// Stats returns the size and usage of a volume, or nil if the driver does not report them.
	Stats(ctx context.Context, pod *v1.Pod, v csi.Volume) (*statsapi.FsStats, error)
	// NeedsRepublish reports whether the driver requires that Mount is repeated periodically
	// (requiresRepublish of the CSIDriver object).
	NeedsRepublish(ctx context.Context, driver string) (bool, error)
}

// makeInline mounts a CSI volume that is defined in the pod's spec.
func (m *Manager) makeInline(ctx context.Context, pod *v1.Pod, name string, s *v1.CSIVolumeSource) (prepared, error) {
	return m.makeDriven(ctx, pod, csi.Volume{Name: name, Inline: s, ReadOnly: s.ReadOnly != nil &&
		*s.ReadOnly, Group: fsGroup(pod)})
}

// makeDriven mounts the volume of a CSI driver.
func (m *Manager) makeDriven(ctx context.Context, pod *v1.Pod, v csi.Volume) (prepared, error) {
	got, err := m.cfg.Drivers.Mount(ctx, pod, v)
	if err != nil {
		return prepared{}, err
	}
	if got.ChangeGroup {
		if err := applyGroup(pod, got.Path, v.ReadOnly); err != nil {
			return prepared{}, err
		}
	}
	return prepared{path: got.Path, device: got.Device, readOnly: v.ReadOnly, managed: got.Path != "" &&
		!v.ReadOnly, labelled: got.Labelled, driven: &v}, nil
}

// maintain mounts a CSI volume again if its driver requires that, and grows the file system on a
// claim's volume if the volume has grown.
func (m *Manager) maintain(ctx context.Context, pod *v1.Pod, v *v1.Volume, p prepared) error {
	if p.driven != nil {
		if err := m.renew(ctx, pod, *p.driven); err != nil {
			return err
		}
	}
	if p.persistent() == nil {
		return nil
	}
	return m.grow(ctx, pod, v, p)
}

// renew mounts a volume again if its driver requires that periodically.
func (m *Manager) renew(ctx context.Context, pod *v1.Pod, v csi.Volume) error {
	driver := ""
	switch {
	case v.PV != nil:
		driver = v.PV.Spec.CSI.Driver
	case v.Inline != nil:
		driver = v.Inline.Driver
	}
	again, err := m.cfg.Drivers.NeedsRepublish(ctx, driver)
	if err != nil || !again {
		return err
	}
	_, err = m.cfg.Drivers.Mount(ctx, pod, v)
	return err
}
