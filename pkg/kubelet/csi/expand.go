// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"fmt"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

// Expand grows the file system on a pod's volume to the size in the volume's spec. It does nothing
// if the driver does not expand volumes on nodes.
func (m *Manager) Expand(ctx context.Context, pod *v1.Pod, v Volume) error {
	r := newRequest(pod, v)
	d, err := m.driver(r.id.driver)
	if err != nil {
		return err
	}
	secrets, err := m.secret(ctx, "NodeExpandSecretRef", v.PV.Spec.CSI.NodeExpandSecretRef)
	if err != nil {
		return err
	}
	vol, done := m.reserve(r.id, false)
	defer done()
	vol.asking.Lock()
	defer vol.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	able, err := d.abilities(ctx)
	if err != nil || !able[csi.NodeServiceCapability_RPC_EXPAND_VOLUME] {
		return err
	}
	req := &csi.NodeExpandVolumeRequest{
		VolumeId: r.id.handle, VolumePath: m.target(r.place), VolumeCapability: capability(r, able), Secrets: secrets,
		CapacityRange: &csi.CapacityRange{RequiredBytes: v.PV.Spec.Capacity.Storage().Value()},
	}
	if able.stages() {
		req.StagingTargetPath = m.stage(r.id, r.place).path
	}
	_, err = d.node.NodeExpandVolume(ctx, req)
	return err
}

// Stats asks the driver for the size and usage of a pod's volume. The result is nil if the driver
// does not report them.
func (m *Manager) Stats(ctx context.Context, pod *v1.Pod, v Volume) (*statsapi.FsStats, error) {
	r := newRequest(pod, v)
	d, err := m.driver(r.id.driver)
	if err != nil {
		return nil, err
	}
	able, err := d.abilities(ctx)
	if err != nil || !able[csi.NodeServiceCapability_RPC_GET_VOLUME_STATS] {
		return nil, err
	}
	req := &csi.NodeGetVolumeStatsRequest{VolumeId: r.id.handle, VolumePath: m.target(r.place)}
	if able.stages() && v.PV != nil {
		req.StagingTargetPath = m.stage(r.id, r.place).path
	}
	got, err := d.node.NodeGetVolumeStats(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("statistics of driver %s: %w", d.name, err)
	}
	out := &statsapi.FsStats{Time: metav1.NewTime(m.cfg.Clock.Now())}
	for _, u := range got.GetUsage() {
		available, total, used := ptr.To(uint64(u.GetAvailable())), ptr.To(uint64(u.GetTotal())), ptr.To(uint64(u.GetUsed()))
		switch u.GetUnit() {
		case csi.VolumeUsage_BYTES:
			out.AvailableBytes, out.CapacityBytes, out.UsedBytes = available, total, used
		case csi.VolumeUsage_INODES:
			out.InodesFree, out.Inodes, out.InodesUsed = available, total, used
		}
	}
	return out, nil
}

// NeedsRepublish reports whether the driver requests that its volumes are published again
// periodically.
func (m *Manager) NeedsRepublish(ctx context.Context, driver string) (bool, error) {
	d, err := m.object(ctx, driver)
	if err != nil || d == nil {
		return false, err
	}
	return d.Spec.RequiresRepublish != nil && *d.Spec.RequiresRepublish, nil
}
