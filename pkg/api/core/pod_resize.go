// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

// preparePodResize keeps all fields of the old pod except the containers' resources and resize
// policies and the pod-level resources. If the update adds or removes containers, it keeps nothing,
// and if the update renames or reorders them, it does not keep that list of containers. Validation
// then rejects the update.
func preparePodResize(_ context.Context, pod, old *corev1.Pod) {
	sameShape := len(pod.Spec.Containers) == len(old.Spec.Containers) &&
		len(pod.Spec.InitContainers) == len(old.Spec.InitContainers)
	if sameShape {
		containers := resized(pod.Spec.Containers, old.Spec.Containers)
		initContainers := resized(pod.Spec.InitContainers, old.Spec.InitContainers)
		own := pod.Spec.Resources
		pod.Spec, pod.Status = old.Spec, old.Status
		metav1.ResetObjectMetaForStatus(pod, old)
		pod.Spec.Containers, pod.Spec.InitContainers, pod.Spec.Resources = containers, initContainers, own
	}
	keepPodResources(pod, old)
	podspec.DefaultPodResources(pod)
	podspec.DropInitAnnotations(&pod.ObjectMeta)
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

// validatePodResize validates a resize of a pod. Only CPU and memory can change.
func validatePodResize(ctx context.Context, pod, old *corev1.Pod) field.ErrorList {
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	}
	if old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	r := report.Report{Errors: validatePodContent(ctx, pod, &old.Spec)}
	spec := field.NewPath("spec")
	if old.Status.QOSClass != podspec.QOSClass(&pod.Spec) {
		r.Invalid(spec, pod.Status.QOSClass, "Pod QOS Class may not change as a result of resizing")
	}
	if !canResize(old) {
		r.Forbidden(spec, "Pod running on node without support for resize")
	}
	rest := pod.Spec.DeepCopy()
	checkOwnResize(&r, rest, &old.Spec, spec)
	ordered := sameOrder(&r, pod.Spec.Containers, old.Spec.Containers, spec, "containers")
	ordered = sameOrder(&r, pod.Spec.InitContainers, old.Spec.InitContainers, spec, "initContainers") && ordered
	if !ordered {
		return r.Errors
	}
	for i := range old.Spec.InitContainers {
		refuseRemoval(&r, &pod.Spec.InitContainers[i].Resources, &old.Spec.InitContainers[i].Resources,
			spec.Child("initContainers").Index(i).Child("resources"))
	}
	for i := range old.Spec.Containers {
		refuseRemoval(&r, &pod.Spec.Containers[i].Resources, &old.Spec.Containers[i].Resources,
			spec.Child("containers").Index(i).Child("resources"))
	}
	checkResized(&r, rest, &old.Spec, spec)
	if !equality.Semantic.DeepEqual(rest.Volumes, old.Spec.Volumes) {
		r.Forbidden(spec.Child("volumes"), "volumes are immutable on resize when "+
			"InPlacePodVerticalScalingMemoryBackedVolumes feature gate is disabled")
	}
	if len(r.Errors) == 0 && !equality.Semantic.DeepEqual(*rest, old.Spec) {
		r.Forbidden(spec, "only cpu and memory resources are mutable")
	}
	return r.Errors
}

// canResize reports whether the pod's node supports resizing. A node that supports it reports the
// resources of running containers in their status, so the first running container shows it. Without
// a running container, the result is true.
func canResize(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.State.Running != nil {
			return s.Resources != nil
		}
	}
	return true
}

func sameOrder(r *report.Report, containers, old []corev1.Container, spec *field.Path, name string) bool {
	if len(containers) != len(old) {
		r.Forbidden(spec.Child(name), name+" may not be added or removed on resize")
		return false
	}
	same := true
	for i := range old {
		if containers[i].Name != old[i].Name {
			r.Forbidden(spec.Child(name).Index(i).Child("name"), name+" may not be renamed or reordered on resize")
			same = false
		}
	}
	return same
}

func refuseRemoval(r *report.Report, is, was *corev1.ResourceRequirements, path *field.Path) {
	if removes(is.Requests, was.Requests) {
		r.Forbidden(path.Child("requests"), "resource requests cannot be removed")
	}
	if removes(is.Limits, was.Limits) {
		r.Forbidden(path.Child("limits"), "resource limits cannot be removed")
	}
}

func removes(list, old corev1.ResourceList) bool {
	for name := range old {
		if _, ok := list[name]; !ok {
			return true
		}
	}
	return false
}

// checkResized sets CPU and memory in the argument rest, which is a copy of the new spec, to their
// old values. It then reports every other difference from the old spec.
func checkResized(r *report.Report, rest, old *corev1.PodSpec, spec *field.Path) {
	for i := range rest.Containers {
		restoreComputing(&rest.Containers[i].Resources, &old.Containers[i].Resources)
		if !equality.Semantic.DeepEqual(rest.Containers[i], old.Containers[i]) {
			r.Forbidden(spec, "only cpu and memory resources are mutable")
		}
	}
	for i := range rest.InitContainers {
		c, was, at := &rest.InitContainers[i], &old.InitContainers[i], spec.Child("initContainers").Index(i)
		changed := !equality.Semantic.DeepEqual(*c, *was)
		restoreComputing(&c.Resources, &was.Resources)
		if !equality.Semantic.DeepEqual(*c, *was) {
			r.Forbidden(at, "only cpu and memory resources for init or sidecar containers are mutable")
		}
		if changed && !podspec.Restartable(c) {
			refuseRestart(r, c, at)
		}
	}
}

// refuseRestart reports a changed init container whose resize policy asks for a restart. Stored
// pods can have such init containers, because older versions accepted them.
func refuseRestart(r *report.Report, c *corev1.Container, at *field.Path) {
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer {
			r.Forbidden(at, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized")
		}
	}
}

func restoreComputing(is, was *corev1.ResourceRequirements) {
	is.Requests = restoredList(is.Requests, was.Requests)
	is.Limits = restoredList(is.Limits, was.Limits)
}

func restoredList(list, old corev1.ResourceList) corev1.ResourceList {
	if list == nil && old == nil {
		return nil
	}
	out := corev1.ResourceList{}
	for name, value := range list {
		out[name] = value
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		delete(out, name)
		if value, ok := old[name]; ok {
			out[name] = value
		}
	}
	return out
}

// checkOwnResize checks changes of the pod-level resources. In the argument rest, which is a copy
// of the new spec, it sets their CPU and memory to the old values.
func checkOwnResize(r *report.Report, rest, old *corev1.PodSpec, spec *field.Path) {
	has := func(own *corev1.ResourceRequirements) bool {
		return own != nil && len(own.Requests)+len(own.Limits) > 0
	}
	if !has(rest.Resources) && !has(old.Resources) {
		return
	}
	path := spec.Child("resources")
	if old.Resources != nil && rest.Resources == nil {
		r.Forbidden(path, "pod-level resources cannot be removed")
		return
	}
	was := old.Resources
	if was == nil {
		was = &corev1.ResourceRequirements{}
	}
	if removes(rest.Resources.Requests, was.Requests) {
		r.Forbidden(path.Child("requests"), "pod-level resource requests cannot be removed")
	}
	if removes(rest.Resources.Limits, was.Limits) {
		r.Forbidden(path.Child("limits"), "pod-level resource limits cannot be removed")
	}
	restoreComputing(rest.Resources, was)
	if old.Resources == nil && !has(rest.Resources) {
		rest.Resources = nil
	}
	if !equality.Semantic.DeepEqual(rest.Resources, old.Resources) {
		r.Forbidden(spec, "only cpu and memory resources are mutable at pod-level")
	}
}
