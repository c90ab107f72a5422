// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/warning"

	"keelson.dev/apiserver/equal"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/unset"
)

func preparePodCreate(ctx context.Context, pod *corev1.Pod) {
	pod.Generation = 1
	class := pod.Status.QOSClass
	unset.Fill(&class, podspec.QOSClass(&pod.Spec))
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: class}
	podspec.DropDisabled(&pod.Spec, nil)
	if len(pod.Spec.SchedulingGates) > 0 {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message:            "Scheduling is blocked due to non-empty scheduling gates",
			LastTransitionTime: pod.CreationTimestamp,
		}}
	}
	podspec.MergeLabelKeys(&pod.Spec, pod.Labels)
	for _, w := range podspec.ProfilesFromAnnotations(pod) {
		warning.AddWarning(ctx, "", w)
	}
}

func preparePodUpdate(_ context.Context, pod, old *corev1.Pod) {
	pod.Status = old.Status
	podspec.DropDisabled(&pod.Spec, &old.Spec)
	countPodSpec(pod, old)
}

func countPodSpec(pod, old *corev1.Pod) {
	pod.Generation = old.Generation
	if !equal.Values(pod.Spec, old.Spec) {
		pod.Generation++
	}
}

// preparePodStatus keeps what a status may not change. Owner references are
// among it, and the deletion timestamp is the server's alone: what arrives is
// dropped, and the server puts back what it knows.
func preparePodStatus(_ context.Context, pod, old *corev1.Pod) {
	pod.Spec = old.Spec
	pod.DeletionTimestamp = nil
	pod.OwnerReferences = old.OwnerReferences
	if pod.Status.QOSClass == "" {
		pod.Status.QOSClass = old.Status.QOSClass
	}
	keepObservedGenerations(pod, old)
	keepClaimStatuses(&pod.Status, &old.Status)
	dropStatusFields(&pod.Status, &old.Status)
}

// keepClaimStatuses puts back which claims the pod has, if a writer that does not know these fields
// has lost them. The list can still be emptied.
func keepClaimStatuses(status, old *corev1.PodStatus) {
	if status.ResourceClaimStatuses == nil {
		status.ResourceClaimStatuses = old.ResourceClaimStatuses
	}
	if status.ExtendedResourceClaimStatus == nil {
		status.ExtendedResourceClaimStatus = old.ExtendedResourceClaimStatus
	}
}

// keepObservedGenerations puts back the generations that a writer who does not
// know of them has lost. Conditions of one type are matched in order.
func keepObservedGenerations(pod, old *corev1.Pod) {
	if pod.Status.ObservedGeneration == 0 {
		pod.Status.ObservedGeneration = old.Status.ObservedGeneration
	}
	seen := map[corev1.PodConditionType][]int64{}
	for _, c := range old.Status.Conditions {
		seen[c.Type] = append(seen[c.Type], c.ObservedGeneration)
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		generations := seen[c.Type]
		if len(generations) == 0 {
			continue
		}
		seen[c.Type] = generations[1:]
		if c.ObservedGeneration == 0 {
			c.ObservedGeneration = generations[0]
		}
	}
}

// dropStatusFields drops what belongs to features that are off: claims for what
// nodes share out by themselves, and the digests of image volumes.
func dropStatusFields(status, old *corev1.PodStatus) {
	if len(old.NodeAllocatableResourceClaimStatuses) == 0 {
		status.NodeAllocatableResourceClaimStatuses = nil
	}
	if eachMount(old, func(m *corev1.VolumeMountStatus) bool { return m.VolumeStatus != nil }) {
		return
	}
	eachMount(status, func(m *corev1.VolumeMountStatus) bool {
		m.VolumeStatus = nil
		return false
	})
}

// eachMount visits mounts until visit returns true, and returns that.
func eachMount(status *corev1.PodStatus, visit func(*corev1.VolumeMountStatus) bool) bool {
	for _, statuses := range [][]corev1.ContainerStatus{
		status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			for j := range statuses[i].VolumeMounts {
				if visit(&statuses[i].VolumeMounts[j]) {
					return true
				}
			}
		}
	}
	return false
}

// preparePodEphemeralContainers keeps everything but the ephemeral containers.
func preparePodEphemeralContainers(_ context.Context, pod, old *corev1.Pod) {
	added := pod.Spec.EphemeralContainers
	pod.Spec, pod.Status = old.Spec, old.Status
	metav1.ResetObjectMetaForStatus(pod, old)
	pod.Spec.EphemeralContainers = added
	podspec.DropDisabled(&pod.Spec, &old.Spec)
	countPodSpec(pod, old)
}

// preparePodResize keeps everything but resources and resize policies. When
// containers were added, removed, renamed or moved it keeps nothing, so that
// validation refuses the change.
func preparePodResize(_ context.Context, pod, old *corev1.Pod) {
	sameShape := len(pod.Spec.Containers) == len(old.Spec.Containers) && len(pod.Spec.InitContainers) == len(old.Spec.InitContainers)
	if sameShape {
		containers := resized(pod.Spec.Containers, old.Spec.Containers)
		initContainers := resized(pod.Spec.InitContainers, old.Spec.InitContainers)
		own := pod.Spec.Resources
		pod.Spec, pod.Status = old.Spec, old.Status
		metav1.ResetObjectMetaForStatus(pod, old)
		pod.Spec.Containers, pod.Spec.InitContainers, pod.Spec.Resources = containers, initContainers, own
	}
	podspec.DropDisabled(&pod.Spec, &old.Spec)
	countPodSpec(pod, old)
}

func resized(containers, old []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(old))
	copy(out, old)
	for i, c := range containers {
		if c.Name != old[i].Name {
			return containers
		}
		out[i].Resources, out[i].ResizePolicy = c.Resources, c.ResizePolicy
	}
	if len(out) == 0 {
		return containers
	}
	return out
}

// gracefulDeletePod gives a pod the time it asks for; one that no kubelet runs,
// or that has ended, needs none.
func gracefulDeletePod(_ context.Context, pod *corev1.Pod, options *metav1.DeleteOptions) bool {
	if options == nil {
		return false
	}
	var seconds int64
	switch {
	case options.GracePeriodSeconds != nil:
		seconds = *options.GracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	if pod.Spec.NodeName == "" || ended {
		seconds = 0
	}
	if seconds < 0 {
		seconds = 1
	}
	options.GracePeriodSeconds = &seconds
	return true
}
