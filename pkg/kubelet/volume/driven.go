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

// Drivers are the node's drivers of the Container Storage Interface. *csi.Manager is them.
type Drivers interface {
	// Mount makes a volume of a pod. It may be repeated.
	Mount(ctx context.Context, pod *v1.Pod, v csi.Volume) (csi.Mounted, error)
	// Teardown takes all volumes of a pod away.
	Teardown(ctx context.Context, pod types.UID) error
	// Expand has what is on a volume grow to the volume's size.
	Expand(ctx context.Context, pod *v1.Pod, v csi.Volume) error
	// Stats tells how full a volume is; nil: the driver does not tell.
	Stats(ctx context.Context, pod *v1.Pod, v csi.Volume) (*statsapi.FsStats, error)
	// Republishes reports whether Mount is to be repeated from time to time.
	Republishes(ctx context.Context, driver string) (bool, error)
}

// makeInline makes a volume of the pod's own.
func (m *Manager) makeInline(ctx context.Context, pod *v1.Pod, name string, s *v1.CSIVolumeSource) (prepared, error) {
	return m.makeDriven(ctx, pod, csi.Volume{Name: name, Inline: s, ReadOnly: s.ReadOnly != nil && *s.ReadOnly, Group: fsGroup(pod)})
}

// makeDriven has a driver make a volume.
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
	return prepared{path: got.Path, device: got.Device, readOnly: v.ReadOnly, managed: got.Path != "" && !v.ReadOnly, labelled: got.Labelled, driven: &v}, nil
}

// tend has a driver renew what it wants to renew, and has what is on the volume of a claim grow with it.
func (m *Manager) tend(ctx context.Context, pod *v1.Pod, v *v1.Volume, p prepared) error {
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

// renew has a driver publish a volume again, if it wants to be asked.
func (m *Manager) renew(ctx context.Context, pod *v1.Pod, v csi.Volume) error {
	driver := ""
	switch {
	case v.PV != nil:
		driver = v.PV.Spec.CSI.Driver
	case v.Inline != nil:
		driver = v.Inline.Driver
	}
	again, err := m.cfg.Drivers.Republishes(ctx, driver)
	if err != nil || !again {
		return err
	}
	_, err = m.cfg.Drivers.Mount(ctx, pod, v)
	return err
}
