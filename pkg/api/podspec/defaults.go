// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"maps"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"

	"keelson.dev/keelson/pkg/api/unset"
)

// DefaultSpec sets the defaults that the specifications of pods and templates have in common.
func DefaultSpec(spec *corev1.PodSpec) {
	// Older clients set the service account in a deprecated field. The server stores it in both
	// fields.
	unset.Fill(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	unset.Fill(&spec.DNSPolicy, corev1.DNSClusterFirst)
	unset.Fill(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	unset.Fill(&spec.SchedulerName, corev1.DefaultSchedulerName)
	unset.Point(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for _, c := range Containers(spec, nil) {
		defaultContainer(c)
	}
	Milli(spec.Overhead)
	if spec.Resources != nil {
		Milli(spec.Resources.Limits)
		Milli(spec.Resources.Requests)
	}
}

func defaultContainer(c *corev1.Container) {
	defaultPullPolicy(&c.ImagePullPolicy, c.Image)
	unset.Fill(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	unset.Fill(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		unset.Fill(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil {
			continue
		}
		defaultFieldRef(from.FieldRef)
		if from.FileKeyRef != nil {
			unset.Point(&from.FileKeyRef.Optional, false)
		}
	}
	Milli(c.Resources.Limits)
	Milli(c.Resources.Requests)
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(probe)
	}
	if c.Lifecycle != nil {
		defaultHook(c.Lifecycle.PostStart)
		defaultHook(c.Lifecycle.PreStop)
	}
}

// defaultPullPolicy sets the default pull policy if the policy is unset. Defaults are set on every
// object that is read, but stored objects always have a policy. So the image name, whose parser
// uses slow regular expressions, is rarely parsed.
func defaultPullPolicy(policy *corev1.PullPolicy, image string) {
	if *policy == "" {
		*policy = pullPolicy(image)
	}
}

// pullPolicy returns the default pull policy for an image: Always if it has the tag "latest" or
// neither tag nor digest, otherwise IfNotPresent. It also returns IfNotPresent if the image name
// cannot be parsed, which validation reports.
func pullPolicy(image string) corev1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return corev1.PullIfNotPresent
	}
	tagged, hasTag := named.(reference.Tagged)
	_, hasDigest := named.(reference.Digested)
	if (hasTag && tagged.Tag() == "latest") || (!hasTag && !hasDigest) {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	unset.Fill(&p.TimeoutSeconds, 1)
	unset.Fill(&p.PeriodSeconds, 10)
	unset.Fill(&p.SuccessThreshold, 1)
	unset.Fill(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		unset.Point(&p.GRPC.Service, "")
	}
}

func defaultHook(h *corev1.LifecycleHandler) {
	if h != nil {
		defaultHTTPGet(h.HTTPGet)
	}
}

func defaultHTTPGet(get *corev1.HTTPGetAction) {
	if get != nil {
		unset.Fill(&get.Path, "/")
		unset.Fill(&get.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		unset.Fill(&ref.APIVersion, "v1")
	}
}

// Milli rounds the quantities in list up to thousandths, the smallest unit that the API stores.
func Milli(list corev1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}

// DefaultPod sets the defaults of a pod: those that only pods have, and those of DefaultSpec.
func DefaultPod(pod *corev1.Pod) {
	spec := &pod.Spec
	for i := range spec.InitContainers {
		requestLimits(&spec.InitContainers[i].Resources)
	}
	for i := range spec.Containers {
		requestLimits(&spec.Containers[i].Resources)
	}
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

// defaultPodIPs makes podIP and the first item of podIPs equal. If they differ, podIP takes
// precedence, because older kubelets set only podIP.
func defaultPodIPs(status *corev1.PodStatus) {
	switch {
	case status.PodIP == "" && len(status.PodIPs) > 0:
		status.PodIP = status.PodIPs[0].IP
	case status.PodIP != "" && (len(status.PodIPs) == 0 || status.PodIPs[0].IP != status.PodIP):
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	}
}

// requestLimits sets requests that are missing to the limits.
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

// DefaultPodResources completes the pod-level resources if the pod has any. It sets, in this order:
// missing limits of huge pages to the sum of the containers' limits; missing requests to the sum of
// the containers' requests or, if the containers have none, to the pod-level limits; and missing
// limits of resources that every container limits to the sum of the containers' limits, but not
// below the requests. It is not part of DefaultPod, because admission plugins and webhooks can add
// containers or change their resources.
func DefaultPodResources(pod *corev1.Pod) {
	own := pod.Spec.Resources
	if own == nil || len(own.Limits)+len(own.Requests) == 0 {
		return
	}
	allowed := podresources.AggregateContainerLimits(pod, podresources.PodResourcesOptions{})
	limits, requests := cloneList(own.Limits), cloneList(own.Requests)
	addMissing(limits, allowed, func(name corev1.ResourceName) bool {
		_, requested := own.Requests[name]
		return hugePages(name) && !requested && podresources.IsSupportedPodLevelResource(name)
	})
	addMissing(requests, podresources.AggregateContainerRequests(pod, podresources.PodResourcesOptions{}),
		func(name corev1.ResourceName) bool {
			return podresources.IsSupportedPodLevelResource(name) && !hugePages(name)
		})
	addMissing(requests, limits, podresources.IsSupportedPodLevelResource)
	addMissing(limits, allowed, func(name corev1.ResourceName) bool {
		_, requested := requests[name]
		return requested && podresources.IsSupportedPodLevelResource(name) && allLimit(&pod.Spec, name)
	})
	for name, limit := range limits {
		if _, set := own.Limits[name]; set {
			continue
		}
		if request, ok := requests[name]; ok && request.Cmp(limit) > 0 {
			limits[name] = request.DeepCopy()
		}
	}
	if len(limits) > 0 {
		own.Limits = limits
	}
	if len(requests) > 0 {
		own.Requests = requests
	}
}

func cloneList(list corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		return corev1.ResourceList{}
	}
	return maps.Clone(list)
}

// allLimit reports whether every container of the pod limits a resource. As in Kubernetes,
// ephemeral containers count, although they cannot have limits.
func allLimit(spec *corev1.PodSpec, name corev1.ResourceName) bool {
	for _, c := range Containers(spec, nil) {
		if _, ok := c.Resources.Limits[name]; !ok {
			return false
		}
	}
	return true
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
