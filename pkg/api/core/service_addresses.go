// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/api/report"
)

func checkClusterIPs(r *report.Report, spec, old *corev1.ServiceSpec, path *field.Path) {
	ips, families := path.Child("clusterIPs"), path.Child("ipFamilies")
	switch {
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		r.Required(ips, "")
	case spec.ClusterIP != "" && spec.ClusterIPs[0] != spec.ClusterIP:
		r.Invalid(ips, spec.ClusterIPs, "first value must match `clusterIP`")
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		r.Invalid(ips, spec.ClusterIPs, "must be empty when `clusterIP` is not specified")
	}
	seen := sets.New[corev1.IPFamily]()
	for i, family := range spec.IPFamilies {
		report.OneOf(r, families.Index(i), family, corev1.IPv4Protocol, corev1.IPv6Protocol)
		if seen.Has(family) {
			r.Duplicate(families.Index(i), family)
		}
		seen.Insert(family)
	}
	if p := spec.IPFamilyPolicy; p != nil {
		report.OneOf(r, path.Child("ipFamilyPolicy"), *p,
			corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)
	}
	valid := true
	for i, ip := range spec.ClusterIPs {
		if i == 0 && ip == corev1.ClusterIPNone {
			if len(spec.ClusterIPs) > 1 {
				valid = false
				r.Invalid(ips, spec.ClusterIPs, "'None' must be the first and only value")
			}
			continue
		}
		errs := validation.IsValidIPForLegacyField(ips.Index(i), ip, true, old.ClusterIPs)
		valid = valid && len(errs) == 0
		r.Add(errs...)
	}
	if len(spec.ClusterIPs) > 2 {
		r.Invalid(ips, spec.ClusterIPs, "may only hold up to 2 values")
	}
	if valid {
		checkFamilies(r, spec, ips)
	}
}

func checkFamilies(r *report.Report, spec *corev1.ServiceSpec, path *field.Path) {
	if len(spec.ClusterIPs) > 1 {
		if dual, err := netutils.IsDualStackIPStrings(spec.ClusterIPs); err != nil || !dual {
			r.Invalid(path, spec.ClusterIPs, "may specify no more than one IP for each IP family")
		}
	}
	if isHeadless(spec) {
		return
	}
	for i, ip := range spec.ClusterIPs {
		if i >= len(spec.IPFamilies) {
			return
		}
		is6, family := netutils.IsIPv6String(ip), spec.IPFamilies[i]
		if is6 && family == corev1.IPv4Protocol || !is6 && family == corev1.IPv6Protocol {
			r.Invalid(path.Index(i), ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%v]`", family, i))
		}
	}
}

// ClusterIPErrors returns the errors in the addresses of a service. If there are any, the allocator
// cannot allocate addresses or ports for the service.
func ClusterIPErrors(spec, old *corev1.ServiceSpec) field.ErrorList {
	var r report.Report
	if spec.Type != corev1.ServiceTypeExternalName {
		checkClusterIPs(&r, spec, old, field.NewPath("spec"))
	}
	return r.Errors
}

func validateServiceUpdate(_ context.Context, svc, old *corev1.Service) field.ErrorList {
	if errs := ClusterIPErrors(&svc.Spec, &old.Spec); len(errs) > 0 {
		return errs
	}
	var r report.Report
	spec, was := &svc.Spec, &old.Spec
	if spec.Type != corev1.ServiceTypeExternalName && was.Type != corev1.ServiceTypeExternalName {
		if !isHeadless(spec) || !isHeadless(was) {
			keepClusterIPs(&r, spec, was)
		}
		if !isHeadless(spec) && !isHeadless(was) {
			keepFamilies(&r, spec, was)
		}
	}
	class := field.NewPath("spec", "loadBalancerClass")
	if spec.Type == corev1.ServiceTypeLoadBalancer && was.Type == spec.Type &&
		!ptr.Equal(spec.LoadBalancerClass, was.LoadBalancerClass) {
		r.Invalid(class, spec.LoadBalancerClass, "may not change once set")
	}
	checkLoadBalancerClass(&r, spec, field.NewPath("spec"))
	if hasHealthPort(spec) && hasHealthPort(was) && spec.HealthCheckNodePort != was.HealthCheckNodePort {
		r.Forbidden(field.NewPath("spec", "healthCheckNodePort"), "field is immutable")
	}
	r.Add(validateServiceContent(svc, old)...)
	return r.Errors
}

const (
	fixed        = "may not change once set"
	singleToFree = "must be set to 'SingleStack' when releasing the secondary "
)

// keepClusterIPs checks that an update does not change the first cluster IP. A second cluster IP
// can be added and removed, but not changed.
func keepClusterIPs(r *report.Report, spec, was *corev1.ServiceSpec) {
	path := field.NewPath("spec", "clusterIPs")
	is, old := spec.ClusterIPs, was.ClusterIPs
	if len(is) == len(old) {
		for i := range old {
			if is[i] != old[i] {
				r.Invalid(path.Index(i), is, fixed)
			}
		}
		return
	}
	if len(old) > len(is) && len(is) == 0 {
		r.Invalid(path.Index(0), is, "primary clusterIP can not be unset")
	}
	if len(old) > 0 && len(is) > 0 && is[0] != old[0] {
		r.Invalid(path.Index(0), is, fixed)
	}
	if len(old) > len(is) && len(is) == 1 && !singleStack(spec) {
		r.Invalid(field.NewPath("spec", "ipFamilyPolicy"), spec.IPFamilyPolicy, singleToFree+"clusterIP")
	}
}

func keepFamilies(r *report.Report, spec, was *corev1.ServiceSpec) {
	path := field.NewPath("spec", "ipFamilies")
	is, old := spec.IPFamilies, was.IPFamilies
	if len(is) == len(old) {
		for i := range old {
			if is[i] != old[i] {
				r.Invalid(path.Index(0), is, fixed)
			}
		}
		return
	}
	if len(old) > len(is) && len(spec.ClusterIPs) == 0 {
		r.Invalid(path.Index(0), is, "primary ipFamily can not be unset")
	}
	if len(old) > 0 && len(is) > 0 && is[0] != old[0] {
		r.Invalid(path.Index(0), spec.ClusterIPs, fixed)
	}
	if len(old) > len(is) && len(is) == 1 && !singleStack(spec) {
		r.Invalid(field.NewPath("spec", "ipFamilyPolicy"), spec.IPFamilyPolicy, singleToFree+"ipFamily")
	}
}

func singleStack(spec *corev1.ServiceSpec) bool {
	return spec.IPFamilyPolicy != nil && *spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
}
