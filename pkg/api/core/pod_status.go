// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

// preparePodStatus restores the fields that an update of the status cannot change, including the
// owner references. It drops the deletion timestamp that the client sends; the server then restores
// the stored one.
func preparePodStatus(_ context.Context, pod, old *corev1.Pod) {
	pod.Spec = old.Spec
	pod.DeletionTimestamp = nil
	pod.OwnerReferences = old.OwnerReferences
	if pod.Status.QOSClass == "" {
		pod.Status.QOSClass = old.Status.QOSClass
	}
	podspec.DropInitAnnotations(&pod.ObjectMeta)
	keepObservedGenerations(pod, old)
	keepClaimStatuses(&pod.Status, &old.Status)
}

// keepClaimStatuses restores fields about resource claims that are missing in an update, because
// older clients do not have these fields. A client can still set the list to an empty one.
func keepClaimStatuses(status, old *corev1.PodStatus) {
	if status.ResourceClaimStatuses == nil {
		status.ResourceClaimStatuses = old.ResourceClaimStatuses
	}
	if status.ExtendedResourceClaimStatus == nil {
		status.ExtendedResourceClaimStatus = old.ExtendedResourceClaimStatus
	}
	if status.NodeAllocatableResourceClaimStatuses == nil {
		status.NodeAllocatableResourceClaimStatuses = old.NodeAllocatableResourceClaimStatuses
	}
}

// keepObservedGenerations restores observed generations that are missing in an update, because
// older clients do not have this field. If there are several conditions of one type, the first new
// one belongs to the first old one, and so on.
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

// gatedStatus returns the gated fields of the status of pods.
func gatedStatus() []resource.Gated[*corev1.Pod] {
	return []resource.Gated[*corev1.Pod]{
		resource.GatedList("DRANodeAllocatableResources", func(p *corev1.Pod) *[]corev1.NodeAllocatableResourceClaimStatus {
			return &p.Status.NodeAllocatableResourceClaimStatuses
		}),
		resource.GatedList("CSIVolumeHealth",
			func(p *corev1.Pod) *[]corev1.PodVolumeHealth { return &p.Status.VolumeHealth }),
		{Feature: "ImageVolumeWithDigest", Visit: func(p *corev1.Pod, drop bool) (found bool) {
			eachMount(&p.Status, func(m *corev1.VolumeMountStatus) {
				found = found || m.VolumeStatus != nil
				if drop {
					m.VolumeStatus = nil
				}
			})
			return found
		}},
	}
}

func validatePodStatus(_ context.Context, pod, old *corev1.Pod) field.ErrorList {
	r := report.Report{Errors: podspec.ValidateAnnotationUpdate(pod, old, field.NewPath("metadata", "annotations"))}
	path := field.NewPath("status")
	status, was := &pod.Status, &old.Status
	checkConditions(&r, status.Conditions, path.Child("conditions"))
	checkNomination(&r, pod, old, path.Child("nominatedNodeName"))
	if status.ObservedGeneration < 0 {
		r.Invalid(path.Child("observedGeneration"), status.ObservedGeneration, "must be a non-negative integer")
	}
	r.Immutable(path.Child("qosClass"), status.QOSClass, was.QOSClass)
	if !anyRestartsAll(&old.Spec) {
		checkTransitions(&r, status.ContainerStatuses, was.ContainerStatuses, path.Child("containerStatuses"),
			mayRestart(&old.Spec, old.Spec.Containers))
		checkTransitions(&r, status.InitContainerStatuses, was.InitContainerStatuses,
			path.Child("initContainerStatuses"), mayRestart(&old.Spec, old.Spec.InitContainers))
	}
	never := func(string, int32) bool { return false }
	checkTransitions(&r, status.EphemeralContainerStatuses, was.EphemeralContainerStatuses,
		path.Child("ephemeralContainerStatuses"), never)
	checkClaimStatuses(&r, pod, path.Child("resourceClaimStatuses"))
	checkExtendedClaim(&r, pod, path.Child("extendedResourceClaimStatus"))
	checkPodIPs(&r, pod, old, path)
	ordinary, initial, ephemeral := path.Child("containerStatuses"), path.Child("initContainerStatuses"),
		path.Child("ephemeralContainerStatuses")
	checkUsers(&r, status.ContainerStatuses, ordinary, pod.Spec.OS)
	checkUsers(&r, status.InitContainerStatuses, initial, pod.Spec.OS)
	checkUsers(&r, status.EphemeralContainerStatuses, ephemeral, pod.Spec.OS)
	extended := status.ExtendedResourceClaimStatus
	checkAllocatedHealth(&r, status.ContainerStatuses, ordinary, pod.Spec.Containers, extended)
	checkAllocatedHealth(&r, status.InitContainerStatuses, initial, pod.Spec.InitContainers, extended)
	checkUnallocated(&r, status.EphemeralContainerStatuses, ephemeral)
	return r.Errors
}

func checkConditions(r *report.Report, conditions []corev1.PodCondition, path *field.Path) {
	own := []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized}
	for i, c := range conditions {
		if c.ObservedGeneration < 0 {
			r.Invalid(path.Index(i).Child("observedGeneration"), c.ObservedGeneration, "must be a non-negative integer")
		}
		if !slices.Contains(own, c.Type) {
			r.QualifiedName(path.Index(i).Child("Type"), string(c.Type))
		}
	}
}

func checkNomination(r *report.Report, pod, old *corev1.Pod, path *field.Path) {
	name := pod.Status.NominatedNodeName
	if name == "" || name == old.Status.NominatedNodeName {
		return
	}
	r.Each(path, name, naming.NameIsDNSSubdomain(name, false))
	if old.Spec.NodeName != "" {
		r.Forbidden(path, "may not be set on pods that are already bound to a node")
	}
}

// checkTransitions rejects an update in which a terminated container gets another state although it
// cannot be restarted. restarts reports whether the container called name is restarted after the
// exit code.
func checkTransitions(r *report.Report, statuses, old []corev1.ContainerStatus, path *field.Path,
	restarts func(name string, exitCode int32) bool) {
	for i, was := range old {
		if was.State.Terminated == nil {
			continue
		}
		for _, is := range statuses {
			if is.Name != was.Name || is.State.Terminated != nil {
				continue
			}
			if !restarts(was.Name, was.State.Terminated.ExitCode) {
				r.Forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state")
			}
			break
		}
	}
}

// anyRestartsAll reports whether any container has a rule that restarts all containers.
func anyRestartsAll(spec *corev1.PodSpec) bool {
	for _, c := range podspec.Containers(spec, nil) {
		for _, rule := range c.RestartPolicyRules {
			if rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}

// mayRestart returns a function that reports whether the container called name is restarted after
// an exit code. If the container has a restart policy of its own, its rules decide first and then
// this policy. Otherwise the pod's restart policy decides.
func mayRestart(spec *corev1.PodSpec, containers []corev1.Container) func(string, int32) bool {
	return func(name string, exitCode int32) bool {
		i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
		if i < 0 {
			return false
		}
		c := &containers[i]
		if c.RestartPolicy == nil {
			return byPolicy(string(spec.RestartPolicy), exitCode)
		}
		for _, rule := range c.RestartPolicyRules {
			if codes := rule.ExitCodes; codes != nil {
				in := slices.Contains(codes.Values, exitCode)
				if in == (codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
					return rule.Action == corev1.ContainerRestartRuleActionRestart
				}
			}
		}
		return byPolicy(string(*c.RestartPolicy), exitCode)
	}
}

func byPolicy(policy string, exitCode int32) bool {
	return policy == string(corev1.RestartPolicyAlways) || policy == string(corev1.RestartPolicyOnFailure) && exitCode != 0
}

func checkClaimStatuses(r *report.Report, pod *corev1.Pod, path *field.Path) {
	seen := sets.New[string]()
	for i, s := range pod.Status.ResourceClaimStatuses {
		at := path.Index(i)
		if !slices.ContainsFunc(pod.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == s.Name }) {
			r.Invalid(at.Child("name"), s.Name, "must match the name of an entry in `spec.resourceClaims`")
		}
		if seen.Has(s.Name) {
			r.Duplicate(at.Child("name"), s.Name)
		}
		seen.Insert(s.Name)
		if s.ResourceClaimName != nil {
			r.Each(at.Child("resourceClaimName"), s.ResourceClaimName, naming.NameIsDNSSubdomain(*s.ResourceClaimName, false))
		}
	}
}

func checkPodIPs(r *report.Report, pod, old *corev1.Pod, path *field.Path) {
	var ips, oldIPs, hosts, oldHosts []string
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	for _, ip := range old.Status.PodIPs {
		oldIPs = append(oldIPs, ip.IP)
	}
	for _, ip := range pod.Status.HostIPs {
		hosts = append(hosts, ip.IP)
	}
	for _, ip := range old.Status.HostIPs {
		oldHosts = append(oldHosts, ip.IP)
	}
	checkIPs(r, ips, oldIPs, pod.Status.PodIPs, path.Child("podIPs"))
	if len(hosts) > 0 && hosts[0] != pod.Status.HostIP {
		r.Invalid(path.Child("hostIPs").Index(0).Child("ip"), hosts[0], "must be equal to `hostIP`")
	}
	checkIPs(r, hosts, oldHosts, pod.Status.HostIPs, path.Child("hostIPs"))
}

func checkIPs(r *report.Report, ips, old []string, value any, path *field.Path) {
	for i, ip := range ips {
		r.Add(validation.IsValidIPForLegacyField(path.Index(i), ip, true, old)...)
	}
	if len(ips) < 2 {
		return
	}
	dual, err := netutils.IsDualStackIPStrings(ips)
	if err != nil {
		r.Add(field.InternalError(path, fmt.Errorf("failed to check for dual stack with error:%w", err)))
	}
	if !dual || len(ips) > 2 {
		r.Invalid(path, value, "may specify no more than one IP for each IP family")
	}
}

// checkExtendedClaim validates the status of the resource claim that the scheduler created for the
// pod's extended resources.
func checkExtendedClaim(r *report.Report, pod *corev1.Pod, path *field.Path) {
	status := pod.Status.ExtendedResourceClaimStatus
	if status == nil {
		return
	}
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	mappings := path.Child("requestMappings")
	if len(status.RequestMappings) == 0 {
		r.Required(mappings, "at least one request mapping is required")
	}
	seen := sets.New[corev1.ContainerExtendedResourceRequest]()
	for i, m := range status.RequestMappings {
		at := mappings.Index(i)
		c := containerNamed(containers, m.ContainerName)
		if c == nil {
			r.Invalid(at.Child("containerName"), m.ContainerName,
				"must match the name of an entry in spec.initContainers.name or spec.containers.name")
		} else if _, ok := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]; !ok {
			r.Invalid(at.Child("resourceName"), m.ResourceName, "must match the extended resource name of "+
				"an entry in spec.initContainers.resources.requests or spec.containers.resources.requests")
		}
		r.Each(path.Child("requestName"), m.RequestName, naming.IsDNS1123Label(m.RequestName))
		if seen.Has(m) {
			r.Duplicate(at.Child("containerName"), m.ContainerName)
			r.Duplicate(at.Child("resourceName"), m.ResourceName)
			r.Duplicate(at.Child("requestName"), m.RequestName)
		}
		seen.Insert(m)
	}
	name := path.Child("resourceClaimName")
	if status.ResourceClaimName == "" {
		r.Required(name, "")
		return
	}
	r.Each(name, status.ResourceClaimName, naming.NameIsDNSSubdomain(status.ResourceClaimName, false))
}

func containerNamed(containers []corev1.Container, name string) *corev1.Container {
	// If several containers have this name, use the last one.
	for i := len(containers) - 1; i >= 0; i-- {
		if containers[i].Name == name {
			return &containers[i]
		}
	}
	return nil
}

// checkUsers validates the users in the statuses of containers.
func checkUsers(r *report.Report, statuses []corev1.ContainerStatus, path *field.Path, os *corev1.PodOS) {
	for i, s := range statuses {
		if s.User == nil || s.User.Linux == nil {
			continue
		}
		at := path.Index(i).Child("user", "linux")
		if os != nil && os.Name == corev1.Windows {
			r.Forbidden(at, "cannot be set for a windows pod")
			continue
		}
		if os != nil && os.Name != corev1.Linux {
			continue
		}
		user := s.User.Linux
		// The user comes from the image, so UIDs are allowed that a pod specification must not
		// have.
		if user.UID < 0 || user.UID > math.MaxUint32 {
			r.Invalid(at.Child("uid"), user.UID, fmt.Sprintf("must be between 0 and %d, inclusive", uint32(math.MaxUint32)))
		}
		r.Each(at.Child("gid"), user.GID, validation.IsValidGroupID(user.GID))
		for n, gid := range user.SupplementalGroups {
			r.Each(at.Child("supplementalGroups").Index(n), gid, validation.IsValidGroupID(gid))
		}
	}
}

// checkAllocatedHealth validates the health of the resources that are allocated to containers.
// containers are the containers in the pod's spec, and extended is the claim for the pod's extended
// resources, or nil.
func checkAllocatedHealth(r *report.Report, statuses []corev1.ContainerStatus, path *field.Path,
	containers []corev1.Container, extended *corev1.PodExtendedResourceClaimStatus) {
	for i, s := range statuses {
		at := path.Index(i).Child("allocatedResourcesStatus")
		for j, allocated := range s.AllocatedResourcesStatus {
			if n := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == s.Name }); n >= 0 {
				checkAllocatedName(r, &containers[n], extended, allocated.Name, at.Index(j).Child("name"))
			}
			checkHealth(r, allocated.Resources, at.Index(j).Child("resources"))
		}
	}
}

// checkAllocatedName validates the name of an allocated resource of a container: that of a resource
// which the container requests, or "claim:" and the name of a claim. extended is the claim for the
// pod's extended resources, or nil.
func checkAllocatedName(r *report.Report, c *corev1.Container, extended *corev1.PodExtendedResourceClaimStatus,
	name corev1.ResourceName, path *field.Path) {
	claim, ok := strings.CutPrefix(string(name), "claim:")
	if !ok {
		if _, requested := c.Resources.Requests[name]; !requested {
			r.Invalid(path, name, "must match one of the container's resource requests")
		}
		return
	}
	known := slices.ContainsFunc(c.Resources.Claims, func(has corev1.ResourceClaim) bool {
		return has.Name == claim && has.Request == "" || has.Request != "" && has.Name+"/"+has.Request == claim
	})
	if !known && !inExtendedClaim(c, extended, claim) {
		r.Invalid(path, name, "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' "+
			"when container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty")
	}
}

// inExtendedClaim reports whether name is that of a request, as "claim/request", in the claim for
// the pod's extended resources, and the container requests the resource of this request.
func inExtendedClaim(c *corev1.Container, extended *corev1.PodExtendedResourceClaimStatus, name string) bool {
	claim, request, ok := strings.Cut(name, "/")
	if !ok || request == "" || extended == nil || claim == "" || claim != extended.ResourceClaimName {
		return false
	}
	return slices.ContainsFunc(extended.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		quantity, asked := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]
		return m.ContainerName == c.Name && m.RequestName == request && asked && !quantity.IsZero()
	})
}

func checkHealth(r *report.Report, resources []corev1.ResourceHealth, path *field.Path) {
	known := []corev1.ResourceHealthStatus{corev1.ResourceHealthStatusHealthy,
		corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown}
	seen := sets.New[corev1.ResourceID]()
	for i, h := range resources {
		at := path.Index(i)
		if !slices.Contains(known, h.Health) {
			r.Add(field.NotSupported(at.Child("health"), h.Health, known))
		}
		if m := h.Message; m != nil && *m == "" {
			r.Required(at.Child("message"), "must be non-empty if specified")
		} else if m != nil && len(*m) > corev1.ResourceHealthMessageMaxLength {
			r.TooLong(at.Child("message"), corev1.ResourceHealthMessageMaxLength)
		}
		if seen.Has(h.ResourceID) {
			r.Duplicate(at.Child("resourceID"), h.ResourceID)
		}
		seen.Insert(h.ResourceID)
	}
}

// checkUnallocated reports allocated resources in the statuses of ephemeral containers, which
// cannot have any.
func checkUnallocated(r *report.Report, statuses []corev1.ContainerStatus, path *field.Path) {
	for i, s := range statuses {
		if len(s.AllocatedResourcesStatus) > 0 {
			r.Forbidden(path.Index(i).Child("allocatedResourcesStatus"), "must not be specified in container status")
		}
	}
}
