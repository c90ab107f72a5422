// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Role is the list of a pod's specification that a container stands in.
type Role int

// The roles of containers, in the order in which they are visited.
const (
	Init Role = iota
	Main
	Ephemeral
)

// Containers visits every container with its role and its path. An ephemeral
// container is visited as the container that it has in common with the others;
// changes to what it points to are changes to the specification.
func Containers(spec *corev1.PodSpec, path *field.Path) iter.Seq2[Place, *corev1.Container] {
	return func(yield func(Place, *corev1.Container) bool) {
		for i := range spec.InitContainers {
			if !yield(Place{Init, path.Child("initContainers").Index(i)}, &spec.InitContainers[i]) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(Place{Main, path.Child("containers").Index(i)}, &spec.Containers[i]) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			c := (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(Place{Ephemeral, path.Child("ephemeralContainers").Index(i)}, c) {
				return
			}
		}
	}
}

// Place is where a container stands.
type Place struct {
	Role Role
	Path *field.Path
}

// Restartable is true of init containers that run beside the main containers.
func Restartable(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
