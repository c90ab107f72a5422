// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volumerestrictions rejects pods whose claim has the access mode ReadWriteOncePod and is
// already used by another pod. It also rejects nodes where another pod uses the same disk, for
// kinds of disks that pods cannot share.
package volumerestrictions

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "VolumeRestrictions"

var inUse = &scheduling.Status{
	Code: scheduling.Unschedulable, Plugin: Name,
	Reasons: []string{"node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode " +
		"already in-use by another pod"},
}

var diskConflict = &scheduling.Status{
	Code: scheduling.Unschedulable, Plugin: Name, Reasons: []string{"node(s) had no available disk"},
}

// New returns the plugin.
func New() scheduling.Plugin {
	return scheduling.Plugin{Name: Name, Filter: &scheduling.FilterPoint{
		Scope: scheduling.CellScope, Events: scheduling.PodRemoved | scheduling.VolumesChanged, Compile: compile,
	}}
}

// compile finds the other pods that use the pod's ReadWriteOncePod claims. While there is such a
// pod, the incoming pod fits no node. Preemption of the other pod may help on its node.
func compile(view scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	users := map[string]bool{}
	var disks []*v1.Volume
	for i := range pod.Spec.Volumes {
		if exclusive(&pod.Spec.Volumes[i]) {
			disks = append(disks, &pod.Spec.Volumes[i])
		}
		source := pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim := view.Volumes().Claim(pod.Namespace, source.ClaimName)
		if claim == nil || !slices.Contains(claim.Spec.AccessModes, v1.ReadWriteOncePod) {
			continue
		}
		for _, uid := range view.Volumes().ClaimUsers(pod.Namespace, source.ClaimName) {
			users[string(uid)] = true
		}
	}
	if len(users)+len(disks) == 0 {
		return scheduling.Filter{}, nil
	}
	f := &filter{users, disks}
	return scheduling.Filter{Check: f.check, Adjust: f.adjust}, nil
}

// filter has the pod's disks. users has the other pods that use the pod's claims; the value is true
// while the pod is still on its node.
type filter struct {
	users map[string]bool
	disks []*v1.Volume
}

func (f *filter) check(n *scheduling.Node) *scheduling.Status {
	if len(f.disks) > 0 {
		for _, p := range n.Pods {
			if f.conflicts(p.Pod) {
				return diskConflict
			}
		}
	}
	for _, there := range f.users {
		if there {
			return inUse
		}
	}
	return nil
}

func (f *filter) adjust(_ *scheduling.Node, pod *scheduling.Pod, d int) {
	if _, user := f.users[string(pod.UID)]; user {
		f.users[string(pod.UID)] = d > 0
	}
}

func (f *filter) conflicts(pod *v1.Pod) bool {
	for i := range pod.Spec.Volumes {
		for _, disk := range f.disks {
			if conflict(disk, &pod.Spec.Volumes[i]) {
				return true
			}
		}
	}
	return false
}

// exclusive reports whether a volume is of a kind that pods on the same node cannot share freely.
func exclusive(v *v1.Volume) bool {
	return v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.RBD != nil || v.ISCSI != nil
}

// conflict reports whether two volumes are the same disk, and two pods on one node must not use it
// together.
func conflict(a, b *v1.Volume) bool {
	switch {
	case a.GCEPersistentDisk != nil && b.GCEPersistentDisk != nil:
		x, y := a.GCEPersistentDisk, b.GCEPersistentDisk
		return x.PDName == y.PDName && !(x.ReadOnly && y.ReadOnly)
	case a.AWSElasticBlockStore != nil && b.AWSElasticBlockStore != nil:
		return a.AWSElasticBlockStore.VolumeID == b.AWSElasticBlockStore.VolumeID
	case a.ISCSI != nil && b.ISCSI != nil:
		return a.ISCSI.IQN == b.ISCSI.IQN && !(a.ISCSI.ReadOnly && b.ISCSI.ReadOnly)
	case a.RBD != nil && b.RBD != nil:
		x, y := a.RBD, b.RBD
		shared := slices.ContainsFunc(x.CephMonitors, func(m string) bool { return slices.Contains(y.CephMonitors, m) })
		return shared && x.RBDPool == y.RBDPool && x.RBDImage == y.RBDImage && !(x.ReadOnly && y.ReadOnly)
	}
	return false
}
