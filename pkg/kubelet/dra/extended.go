// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Serves reports whether a resource claim, instead of a device plugin, provides an extended
// resource to a container. The scheduler writes this to the pod's status.
func Serves(pod *v1.Pod, container string, resource v1.ResourceName) bool {
	s := pod.Status.ExtendedResourceClaimStatus
	return s != nil && slices.ContainsFunc(s.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == container && m.ResourceName == string(resource)
	})
}

// claimsOf returns the claims that a pod refers to, including the claim for its extended resources.
func claimsOf(pod *v1.Pod) []v1.PodResourceClaim {
	s := pod.Status.ExtendedResourceClaimStatus
	if s == nil {
		return pod.Spec.ResourceClaims
	}
	return append(slices.Clip(pod.Spec.ResourceClaims), v1.PodResourceClaim{ResourceClaimName: &s.ResourceClaimName})
}

// extended returns the devices that a container gets from the claim for the pod's extended
// resources.
func (m *Manager) extended(pod *v1.Pod, c *v1.Container) ([]Claim, error) {
	s := pod.Status.ExtendedResourceClaimStatus
	if s == nil {
		return nil, nil
	}
	var out []Claim
	for _, r := range s.RequestMappings {
		if q := c.Resources.Requests[v1.ResourceName(r.ResourceName)]; r.ContainerName != c.Name || q.IsZero() {
			continue
		}
		devices, err := m.devices(pod, s.ResourceClaimName, r.RequestName)
		if err != nil {
			return nil, err
		}
		if len(out) == 0 {
			out = []Claim{{Namespace: pod.Namespace, Name: s.ResourceClaimName}}
		}
		out[0].Devices = append(out[0].Devices, devices...)
	}
	return out, nil
}
