// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/core"
)

func headless(svc *corev1.Service) bool { return svc.Spec.ClusterIP == corev1.ClusterIPNone }

func external(svc *corev1.Service) bool { return svc.Spec.Type == corev1.ServiceTypeExternalName }

func policyOf(svc *corev1.Service) corev1.IPFamilyPolicy {
	if svc.Spec.IPFamilyPolicy == nil {
		return ""
	}
	return *svc.Spec.IPFamilyPolicy
}

func familyOf(ip string) (corev1.IPFamily, bool) {
	addr, err := netip.ParseAddr(ip)
	switch {
	case err != nil:
		return "", false
	case addr.Is4():
		return corev1.IPv4Protocol, true
	}
	return corev1.IPv6Protocol, true
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// syncClusterIPs sets clusterIPs from clusterIP if a client sets only clusterIP, because it does
// not know the newer field clusterIPs. old is nil on create.
func syncClusterIPs(svc, old *corev1.Service) {
	spec := &svc.Spec
	if old == nil {
		if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = []string{spec.ClusterIP}
		}
		return
	}
	if len(spec.ClusterIPs) == 0 && len(old.Spec.ClusterIPs) > 0 && spec.ClusterIP == old.Spec.ClusterIP {
		spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
	}
	if spec.ClusterIP == old.Spec.ClusterIP || !slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs) {
		return
	}
	if spec.ClusterIP == "" {
		spec.ClusterIPs = nil
	} else {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
}

// keepsPreference reports whether an update to a service with policy PreferDualStack changes
// neither its addresses nor its families. If the service has one family, such an update does not
// add a second one, even if the cluster now has two.
func keepsPreference(svc, old *corev1.Service) bool {
	return old != nil && old.Spec.Type == svc.Spec.Type && !external(svc) &&
		policyOf(svc) == corev1.IPFamilyPolicyPreferDualStack &&
		(old.Spec.IPFamilyPolicy == nil || policyOf(old) == corev1.IPFamilyPolicyPreferDualStack) &&
		slices.Equal(svc.Spec.ClusterIPs, old.Spec.ClusterIPs) && slices.Equal(svc.Spec.IPFamilies, old.Spec.IPFamilies)
}

// families decides ipFamilyPolicy and ipFamilies of a service.
type families struct {
	configured []corev1.IPFamily // families of the cluster, the default first
	svc, old   *corev1.Service   // old is nil on create
	errs       field.ErrorList
}

func (f *families) has(family corev1.IPFamily) bool { return slices.Contains(f.configured, family) }

func (f *families) invalid(path *field.Path, value any, detail string) {
	f.errs = append(f.errs, field.Invalid(path, value, detail))
}

func (f *families) err() error {
	if len(f.errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), f.svc.Name, f.errs)
}

// decide sets ipFamilyPolicy and ipFamilies of f.svc, whose addresses must be valid.
func (f *families) decide() error {
	if external(f.svc) || keepsPreference(f.svc, f.old) {
		return nil
	}
	f.defaultPolicy()
	var was corev1.ServiceSpec
	if f.old != nil {
		was = f.old.Spec
	}
	f.errs = core.ClusterIPErrors(&f.svc.Spec, &was)
	if err := f.err(); err != nil {
		return err
	}
	f.reduce()
	f.checkSingle()
	f.infer()
	if err := f.err(); err != nil {
		return err
	}
	spec := &f.svc.Spec
	if headless(f.svc) && len(spec.Selector) == 0 {
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = []corev1.IPFamily{f.configured[0]}
		}
		if len(spec.IPFamilies) == 1 && policyOf(f.svc) != corev1.IPFamilyPolicySingleStack {
			spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
		}
		return nil
	}
	f.checkConfigured()
	if err := f.err(); err != nil {
		return err
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{f.configured[0]}
	}
	if policyOf(f.svc) != corev1.IPFamilyPolicySingleStack && len(spec.IPFamilies) == 1 && len(f.configured) == 2 {
		spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
	}
	return nil
}

// defaultPolicy sets ipFamilyPolicy if the client left it out: on update to the stored policy, and
// otherwise to a default.
func (f *families) defaultPolicy() {
	spec := &f.svc.Spec
	if spec.IPFamilyPolicy != nil {
		return
	}
	policy := corev1.IPFamilyPolicySingleStack
	switch {
	case f.old != nil && f.old.Spec.IPFamilyPolicy != nil:
		policy = *f.old.Spec.IPFamilyPolicy
	case headless(f.svc) && len(spec.Selector) == 0:
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	spec.IPFamilyPolicy = &policy
}

// reduce handles a change of the policy to SingleStack: it removes the second address and the
// second family, each only if the update leaves its list as it was. With another policy, it rejects
// an update that removes an address or family.
func (f *families) reduce() {
	if f.old == nil {
		return
	}
	spec, was, path := &f.svc.Spec, &f.old.Spec, field.NewPath("spec", "ipFamilyPolicy")
	if policyOf(f.svc) == corev1.IPFamilyPolicySingleStack {
		if slices.Equal(spec.ClusterIPs, was.ClusterIPs) && len(spec.ClusterIPs) > 1 {
			spec.ClusterIPs = spec.ClusterIPs[:1]
		}
		if slices.Equal(spec.IPFamilies, was.IPFamilies) && len(spec.IPFamilies) > 1 {
			spec.IPFamilies = spec.IPFamilies[:1]
		}
		return
	}
	if len(was.ClusterIPs) == 2 && len(spec.ClusterIPs) == 1 { // the client may have removed either address
		f.invalid(path, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary cluster IP")
	}
	if len(was.IPFamilies) == 2 && len(spec.IPFamilies) == 1 { // the client may have removed either family
		f.invalid(path, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary IP family")
	}
}

func (f *families) checkSingle() {
	spec, path := &f.svc.Spec, field.NewPath("spec", "ipFamilyPolicy")
	if policyOf(f.svc) != corev1.IPFamilyPolicySingleStack {
		return
	}
	if len(spec.ClusterIPs) == 2 {
		f.invalid(path, spec.IPFamilyPolicy,
			"must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified")
	}
	if len(spec.IPFamilies) == 2 {
		f.invalid(path, spec.IPFamilyPolicy,
			"must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified")
	}
}

// infer adds to the service's ipFamilies the families of the addresses that the client requested.
func (f *families) infer() {
	spec := &f.svc.Spec
	for i, ip := range spec.ClusterIPs {
		family, ok := familyOf(ip)
		if !ok || i < len(spec.IPFamilies) {
			continue
		}
		if !f.has(family) {
			f.invalid(field.NewPath("spec", "clusterIPs").Index(i), spec.ClusterIPs,
				fmt.Sprintf("%s is not configured on this cluster", family))
			continue
		}
		spec.IPFamilies = append(spec.IPFamilies, family)
	}
}

func (f *families) checkConfigured() {
	spec := &f.svc.Spec
	if policyOf(f.svc) == corev1.IPFamilyPolicyRequireDualStack && len(f.configured) < 2 {
		f.invalid(field.NewPath("spec", "ipFamilyPolicy"), spec.IPFamilyPolicy,
			"this cluster is not configured for dual-stack services")
	}
	for i, family := range spec.IPFamilies {
		if !f.has(family) {
			f.invalid(field.NewPath("spec", "ipFamilies").Index(i), family, "not configured on this cluster")
		}
	}
}
