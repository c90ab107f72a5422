// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	corev1 "k8s.io/api/core/v1"
)

// DropDisabled clears the fields of features that Kubernetes 1.36 keeps off by
// default, unless old, the specification that is replaced, already uses them.
// old is nil on create.
func DropDisabled(spec, old *corev1.PodSpec) {
	if old == nil || old.SchedulingGroup == nil {
		spec.SchedulingGroup = nil
	}
	if !uses(old, func(s *corev1.VolumeProjection) bool { return s.ClusterTrustBundle != nil }) {
		eachProjection(spec, func(s *corev1.VolumeProjection) { s.ClusterTrustBundle = nil })
	}
	if !uses(old, func(s *corev1.VolumeProjection) bool { return s.PodCertificate != nil }) {
		eachProjection(spec, func(s *corev1.VolumeProjection) { s.PodCertificate = nil })
	}
	if !usesStopSignal(old) {
		for _, c := range Containers(spec, nil) {
			if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
				c.Lifecycle.StopSignal = nil
				if *c.Lifecycle == (corev1.Lifecycle{}) {
					c.Lifecycle = nil
				}
			}
		}
	}
}

func uses(spec *corev1.PodSpec, is func(*corev1.VolumeProjection) bool) bool {
	found := false
	eachProjection(spec, func(s *corev1.VolumeProjection) { found = found || is(s) })
	return found
}

func eachProjection(spec *corev1.PodSpec, visit func(*corev1.VolumeProjection)) {
	if spec == nil {
		return
	}
	for i := range spec.Volumes {
		if p := spec.Volumes[i].Projected; p != nil {
			for j := range p.Sources {
				visit(&p.Sources[j])
			}
		}
	}
}

func usesStopSignal(spec *corev1.PodSpec) bool {
	if spec == nil {
		return false
	}
	for _, c := range Containers(spec, nil) {
		if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
			return true
		}
	}
	return false
}
