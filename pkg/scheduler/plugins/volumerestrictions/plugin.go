// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volumerestrictions keeps a second pod from using a claim whose access
// mode is ReadWriteOncePod.
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
	Reasons: []string{"node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"},
}

// Plugin implements scheduling.FilterPlugin.
type Plugin struct{}

var _ scheduling.FilterPlugin = Plugin{}

// Name implements scheduling.Plugin.
func (Plugin) Name() string { return Name }

// Scope implements scheduling.FilterPlugin.
func (Plugin) Scope() scheduling.Scope { return scheduling.CellScope }

// Events implements scheduling.FilterPlugin.
func (Plugin) Events() scheduling.Event { return scheduling.PodRemoved | scheduling.VolumesChanged }

// Compile implements scheduling.FilterPlugin. A claim's user keeps the pod from
// every node; on the user's own node preemption may help.
func (Plugin) Compile(view scheduling.View, pod *scheduling.Pod) (scheduling.Filter, *scheduling.Status) {
	users := map[string]bool{}
	for i := range pod.Spec.Volumes {
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
	if len(users) == 0 {
		return nil, nil
	}
	return &filter{users}, nil
}

// filter knows the other users of the pod's claims, and which of them are there.
type filter struct{ users map[string]bool }

// Filter implements scheduling.Filter.
func (f *filter) Filter(*scheduling.Node) *scheduling.Status {
	for _, there := range f.users {
		if there {
			return inUse
		}
	}
	return nil
}

// Adjust implements scheduling.Adjustable.
func (f *filter) Adjust(_ *scheduling.Node, pod *scheduling.Pod, d int) {
	if _, user := f.users[string(pod.UID)]; user {
		f.users[string(pod.UID)] = d > 0
	}
}
