// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"keelson.dev/keelson/pkg/api/unset"
)

// DefaultPod fills what is unset in a pod: what DefaultSpec fills, and what
// templates do not get.
func DefaultPod(pod *corev1.Pod) {
	spec := &pod.Spec
	for i := range spec.InitContainers {
		requestLimits(&spec.InitContainers[i].Resources)
	}
	for i := range spec.Containers {
		requestLimits(&spec.Containers[i].Resources)
	}
	DefaultPodResources(pod)
	unset.Point(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	if spec.HostNetwork {
		openHostPorts(spec.InitContainers)
		openHostPorts(spec.Containers)
	}
	DefaultSpec(spec)
	if grace := spec.TerminationGracePeriodSeconds; *grace < 0 {
		*grace = 1
	}
	defaultPodIPs(&pod.Status)
	for _, statuses := range [][]corev1.ContainerStatus{
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			Milli(statuses[i].AllocatedResources)
			if r := statuses[i].Resources; r != nil {
				Milli(r.Limits)
				Milli(r.Requests)
			}
		}
	}
	Milli(pod.Status.AllocatedResources)
	if r := pod.Status.Resources; r != nil {
		Milli(r.Limits)
		Milli(r.Requests)
	}
}

// defaultPodIPs keeps the first of a pod's addresses and the list of all in step.
// Older kubelets know of one address only: it wins.
func defaultPodIPs(status *corev1.PodStatus) {
	switch {
	case status.PodIP == "" && len(status.PodIPs) > 0:
		status.PodIP = status.PodIPs[0].IP
	case status.PodIP != "" && (len(status.PodIPs) == 0 || status.PodIPs[0].IP != status.PodIP):
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	}
}

// requestLimits asks for as much as the limits allow where nothing is asked for.
func requestLimits(r *corev1.ResourceRequirements) {
	if r.Limits == nil {
		return
	}
	if r.Requests == nil {
		r.Requests = make(corev1.ResourceList, len(r.Limits))
	}
	addMissing(r.Requests, r.Limits, always)
}

func openHostPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			port := &containers[i].Ports[j]
			unset.Fill(&port.HostPort, port.ContainerPort)
		}
	}
}

// DefaultPodResources completes a pod's own resources from its containers',
// where the pod has some of its own: limits of huge pages first, then requests,
// and where no container asks, requests from the pod's limits.
func DefaultPodResources(pod *corev1.Pod) {
	own := pod.Spec.Resources
	if own == nil || len(own.Limits)+len(own.Requests) == 0 {
		return
	}
	limits := maps.Clone(own.Limits)
	if limits == nil {
		limits = corev1.ResourceList{}
	}
	addMissing(limits, resource.AggregateContainerLimits(pod, resource.PodResourcesOptions{}), func(name corev1.ResourceName) bool {
		_, requested := own.Requests[name]
		return hugePages(name) && !requested && resource.IsSupportedPodLevelResource(name)
	})
	if len(limits) > 0 {
		own.Limits = limits
	}
	if len(own.Limits) == 0 {
		return
	}
	requests := maps.Clone(own.Requests)
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	addMissing(requests, resource.AggregateContainerRequests(pod, resource.PodResourcesOptions{}), func(name corev1.ResourceName) bool {
		return resource.IsSupportedPodLevelResource(name) && !hugePages(name)
	})
	addMissing(requests, own.Limits, resource.IsSupportedPodLevelResource)
	if len(requests) > 0 {
		own.Requests = requests
	}
}

func addMissing(to, from corev1.ResourceList, want func(corev1.ResourceName) bool) {
	for name, quantity := range from {
		if _, ok := to[name]; !ok && want(name) {
			to[name] = quantity.DeepCopy()
		}
	}
}

func always(corev1.ResourceName) bool { return true }

func hugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
