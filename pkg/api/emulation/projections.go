// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package emulation

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
)

// podSpec returns the pod specification in an object, or nil if it has none.
func podSpec(obj resource.Object) *corev1.PodSpec {
	switch o := obj.(type) {
	case *corev1.Pod:
		return &o.Spec
	case *corev1.PodTemplate:
		return &o.Template.Spec
	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			return &o.Spec.Template.Spec
		}
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec
	case *batchv1.Job:
		return &o.Spec.Template.Spec
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec
	}
	return nil
}

// hasPods reports whether objects of the type of obj have a pod specification.
func hasPods(obj resource.Object) bool {
	_, optional := obj.(*corev1.ReplicationController)
	return optional || podSpec(obj) != nil
}

// droppedSource returns the rule for a type of sources of projected volumes. at returns the address of
// the field for this type.
func droppedSource[T any](name string, at func(*corev1.VolumeProjection) **T) *rule {
	return &rule{
		name: "sources " + name + " of projected volumes",
		uses: func(obj resource.Object) (used bool) {
			eachSource(podSpec(obj), func(s *corev1.VolumeProjection) { used = used || *at(s) != nil })
			return used
		},
		clear: func(obj resource.Object) {
			eachSource(podSpec(obj), func(s *corev1.VolumeProjection) { *at(s) = nil })
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
