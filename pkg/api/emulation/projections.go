// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package emulation

import (
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
)

// droppedSource returns the rule for a type of sources of projected volumes. at returns the address of
// the field for this type.
func droppedSource[T any](name string, at func(*corev1.VolumeProjection) **T) *rule {
	return &rule{
		name: "sources " + name + " of projected volumes",
		uses: func(obj resource.Object) (used bool) {
			eachSource(podspec.Of(obj), func(s *corev1.VolumeProjection) { used = used || *at(s) != nil })
			return used
		},
		clear: func(obj resource.Object) {
			eachSource(podspec.Of(obj), func(s *corev1.VolumeProjection) { *at(s) = nil })
		},
	}
}

func eachSource(spec *corev1.PodSpec, visit func(*corev1.VolumeProjection)) {
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
