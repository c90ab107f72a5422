// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodevolumelimits rejects nodes to which no more volumes of a CSI driver can be attached,
// according to the limits in the node's CSINode object. It also rejects nodes that lack a driver
// whose CSIDriver object has preventPodSchedulingIfMissing.
package nodevolumelimits

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/volume"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "NodeVolumeLimits"

var exceeded = &scheduling.Status{
	Code: scheduling.Unschedulable, Plugin: Name, Reasons: []string{"node(s) exceed max volume count"},
}

// New returns the plugin.
func New() scheduling.Plugin {
	return scheduling.Plugin{Name: Name, Filter: &scheduling.FilterPoint{
		Scope: scheduling.CellScope, Events: scheduling.VolumesChanged | scheduling.PodRemoved, Compile: compile,
	}}
}

func compile(view scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	f := &filter{volumes: view.Volumes(), wanted: map[attachment]bool{}}
	for i := range pod.Spec.Volumes {
		name := claimOf(pod.Pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim := f.volumes.Claim(pod.Namespace, name)
		if claim == nil {
			return scheduling.Filter{}, &scheduling.Status{
				Code: scheduling.Unresolvable, Plugin: Name,
				Reasons: []string{fmt.Sprintf("looking up PVC %s/%s: persistentvolumeclaim %q not found",
					pod.Namespace, name, name)},
			}
		}
		if a, ok := f.attached(claim); ok {
			f.wanted[a] = true
		}
	}
	if len(f.wanted) == 0 {
		return scheduling.Filter{}, nil
	}
	return scheduling.Filter{Check: f.check}, nil
}

// attachment identifies a volume of a CSI driver.
type attachment struct{ driver, handle string }

type filter struct {
	volumes scheduling.VolumeView
	wanted  map[attachment]bool
}

func claimOf(pod *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// attached returns the CSI volume of a claim, and false if the claim has no CSI volume. If the
// volume is not provisioned yet, the handle is made from the claim's name.
func (f *filter) attached(claim *v1.PersistentVolumeClaim) (attachment, bool) {
	if claim.Spec.VolumeName != "" {
		if pv := f.volumes.Volume(claim.Spec.VolumeName); pv != nil {
			csi := pv.Spec.CSI
			if csi == nil {
				return attachment{}, false
			}
			return attachment{csi.Driver, csi.VolumeHandle}, csi.Driver != "" && csi.VolumeHandle != ""
		}
	}
	class := f.volumes.Class(volume.GetPersistentVolumeClaimClass(claim))
	if class == nil {
		return attachment{}, false
	}
	return attachment{class.Provisioner, "claim " + claim.Namespace + "/" + claim.Name}, class.Provisioner != ""
}

func (f *filter) check(n *scheduling.Node) *scheduling.Status {
	node := f.volumes.CSINode(n.Name)
	for a := range f.wanted {
		if f.required(a.driver) && !has(node, a.driver) {
			return &scheduling.Status{Code: scheduling.Unschedulable, Plugin: Name,
				Reasons: []string{a.driver + " CSI driver is not installed on the node"}}
		}
	}
	limits := limitsOf(node)
	if len(limits) == 0 {
		return nil
	}
	there := map[attachment]bool{}
	for _, pod := range n.Pods {
		for i := range pod.Spec.Volumes {
			claim := f.volumes.Claim(pod.Namespace, claimOf(pod.Pod, &pod.Spec.Volumes[i]))
			if claim == nil {
				continue
			}
			if a, ok := f.attached(claim); ok {
				there[a] = true
			}
		}
	}
	for _, va := range f.volumes.Attachments(n.Name) {
		if a, ok := f.attachmentOf(va); ok {
			there[a] = true
		}
	}
	count := map[string]int64{}
	for a := range there {
		count[a.driver]++
	}
	for a := range f.wanted {
		if there[a] {
			continue
		}
		count[a.driver]++
		if limit, ok := limits[a.driver]; ok && count[a.driver] > limit {
			return exceeded
		}
	}
	return nil
}

// required reports whether pods with volumes of the driver may run only on nodes that have the driver.
func (f *filter) required(driver string) bool {
	d := f.volumes.Driver(driver)
	return d != nil && d.Spec.PreventPodSchedulingIfMissing != nil && *d.Spec.PreventPodSchedulingIfMissing
}

func has(node *storagev1.CSINode, driver string) bool {
	return node != nil && slices.ContainsFunc(node.Spec.Drivers,
		func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
}

func (f *filter) attachmentOf(va *storagev1.VolumeAttachment) (attachment, bool) {
	name := va.Spec.Source.PersistentVolumeName
	if va.Spec.Attacher == "" || name == nil {
		return attachment{}, false
	}
	pv := f.volumes.Volume(*name)
	if pv == nil || pv.Spec.CSI == nil {
		return attachment{}, false
	}
	return attachment{va.Spec.Attacher, pv.Spec.CSI.VolumeHandle}, true
}

func limitsOf(node *storagev1.CSINode) map[string]int64 {
	limits := map[string]int64{}
	if node == nil {
		return limits
	}
	for _, d := range node.Spec.Drivers {
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			limits[d.Name] = int64(*d.Allocatable.Count)
		}
	}
	return limits
}
