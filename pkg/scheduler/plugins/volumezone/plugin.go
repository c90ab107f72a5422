// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volumezone rejects nodes that are not in the zone or region of a bound volume, according
// to the volume's labels. Nodes without zone and region labels are accepted.
package volumezone

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/volume"

	"keelson.dev/scheduling"
)

// Name is the plugin's name in configuration, logs and metrics.
const Name = "VolumeZone"

// separator separates several zones in the value of one volume label.
const separator = "__"

var conflict = unresolvable("node(s) had no available volume zone")

func unresolvable(reason string) *scheduling.Status {
	return &scheduling.Status{Code: scheduling.Unresolvable, Plugin: Name, Reasons: []string{reason}}
}

// topologyLabels has the labels of volumes that the plugin compares with the labels of nodes. Each
// entry has a label and the label's current name, which differs only if the label was renamed.
var topologyLabels = []struct{ of, now string }{
	{v1.LabelFailureDomainBetaZone, v1.LabelTopologyZone},
	{v1.LabelFailureDomainBetaRegion, v1.LabelTopologyRegion},
	{v1.LabelTopologyZone, v1.LabelTopologyZone},
	{v1.LabelTopologyRegion, v1.LabelTopologyRegion},
}

// New returns the plugin.
func New() scheduling.Plugin {
	return scheduling.Plugin{Name: Name, Filter: &scheduling.FilterPoint{
		Scope: scheduling.CellScope, Compile: compile,
		Events: scheduling.VolumesChanged | scheduling.NodeAdded | scheduling.NodeLabelsChanged,
	}}
}

func compile(view scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	var f filter
	for i := range pod.Spec.Volumes {
		source := pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		if st := f.add(view.Volumes(), pod.Namespace, source.ClaimName); st != nil {
			return scheduling.Filter{}, st
		}
	}
	if len(f) == 0 {
		return scheduling.Filter{}, nil
	}
	return scheduling.Filter{Check: f.check}, nil
}

// filter has the label values that the volumes require of a node.
type filter []requirement

type requirement struct {
	label, now string
	values     []string
}

func (f *filter) add(volumes scheduling.VolumeView, namespace, name string) *scheduling.Status {
	claim := volumes.Claim(namespace, name)
	if claim == nil {
		return unresolvable(fmt.Sprintf("persistentvolumeclaim %q not found", name))
	}
	if claim.Spec.VolumeName == "" {
		return unbound(volumes, claim)
	}
	pv := volumes.Volume(claim.Spec.VolumeName)
	if pv == nil {
		return unresolvable(fmt.Sprintf("persistentvolume %q not found", claim.Spec.VolumeName))
	}
	for _, label := range topologyLabels {
		if value, ok := pv.Labels[label.of]; ok {
			*f = append(*f, requirement{label.of, label.now, strings.Split(value, separator)})
		}
	}
	return nil
}

// unbound returns a status that rejects the pod because of an unbound claim, or nil if the claim's
// binding mode is WaitForFirstConsumer.
func unbound(volumes scheduling.VolumeView, claim *v1.PersistentVolumeClaim) *scheduling.Status {
	name := volume.GetPersistentVolumeClaimClass(claim)
	if name == "" {
		return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
	}
	class := volumes.Class(name)
	switch {
	case class == nil:
		return unresolvable(fmt.Sprintf("storageclass.storage.k8s.io %q not found", name))
	case class.VolumeBindingMode == nil:
		return unresolvable(fmt.Sprintf("VolumeBindingMode not set for StorageClass %q", name))
	case *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer:
		return unresolvable("PersistentVolume had no name")
	}
	return nil
}

func (f *filter) check(n *scheduling.Node) *scheduling.Status {
	if !labelled(n) {
		return nil
	}
	for _, r := range *f {
		value, ok := n.Labels[r.label]
		if !ok {
			value, ok = n.Labels[r.now]
		}
		if !ok || !slices.Contains(r.values, value) {
			return conflict
		}
	}
	return nil
}

func labelled(n *scheduling.Node) bool {
	for _, label := range topologyLabels {
		if _, ok := n.Labels[label.of]; ok {
			return true
		}
	}
	return false
}
