// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"keelson.dev/apiserver/naming"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

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
		checkTransitions(&r, status.ContainerStatuses, was.ContainerStatuses, path.Child("containerStatuses"), mayRestart(&old.Spec, old.Spec.Containers))
		checkTransitions(&r, status.InitContainerStatuses, was.InitContainerStatuses, path.Child("initContainerStatuses"), mayRestart(&old.Spec, old.Spec.InitContainers))
	}
	never := func(string, int32) bool { return false }
	checkTransitions(&r, status.EphemeralContainerStatuses, was.EphemeralContainerStatuses, path.Child("ephemeralContainerStatuses"), never)
	checkClaimStatuses(&r, pod, path.Child("resourceClaimStatuses"))
	checkExtendedClaim(&r, pod, path.Child("extendedResourceClaimStatus"))
	checkPodIPs(&r, pod, old, path)
	ordinary, initial, ephemeral := path.Child("containerStatuses"), path.Child("initContainerStatuses"), path.Child("ephemeralContainerStatuses")
	checkUsers(&r, status.ContainerStatuses, ordinary, pod.Spec.OS)
	checkUsers(&r, status.InitContainerStatuses, initial, pod.Spec.OS)
	checkUsers(&r, status.EphemeralContainerStatuses, ephemeral, pod.Spec.OS)
	checkAllocatedHealth(&r, status.ContainerStatuses, ordinary, pod.Spec.Containers)
	checkAllocatedHealth(&r, status.InitContainerStatuses, initial, pod.Spec.InitContainers)
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

// checkTransitions refuses to bring back a container that ended for good.
func checkTransitions(r *report.Report, statuses, old []corev1.ContainerStatus, path *field.Path, restarts func(name string, exitCode int32) bool) {
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

// anyRestartsAll is true when one container's exit may restart all of them.
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

// mayRestart says whether a container comes back after an exit code: its rules
// decide first, then its policy, then the pod's.
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
