// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/report"
)

func validateIPAddress(_ context.Context, a *networkingv1.IPAddress) field.ErrorList {
	r, path, ref := &report.Report{}, field.NewPath("spec", "parentRef"), a.Spec.ParentRef
	if ref == nil {
		r.Required(path, "")
		return r.Errors
	}
	if ref.Group != "" {
		r.Subdomain(path.Child("group"), ref.Group)
	}
	segment(r, path.Child("resource"), ref.Resource)
	segment(r, path.Child("name"), ref.Name)
	if ref.Namespace != "" {
		segment(r, path.Child("namespace"), ref.Namespace)
	}
	return r.Errors
}

func validateIPAddressUpdate(ctx context.Context, a, old *networkingv1.IPAddress) field.ErrorList {
	r := &report.Report{Errors: append(validateIPAddress(ctx, a), resource.MetaHere())}
	r.Immutable(field.NewPath("spec").Child("parentRef"), a.Spec.ParentRef, old.Spec.ParentRef)
	return r.Errors
}

const (
	maxCIDRs = 2
	perIP    = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
)

func validateServiceCIDR(_ context.Context, c *networkingv1.ServiceCIDR) field.ErrorList {
	r, path := &report.Report{}, field.NewPath("spec", "cidrs")
	switch n := len(c.Spec.CIDRs); {
	case n == 0:
		r.Required(path, "at least one CIDR required")
		return r.Errors
	case n > maxCIDRs:
		// Kubernetes shows the spec as it has it in memory, with that name.
		r.Invalid(path, struct{ CIDRs []string }{c.Spec.CIDRs}, "may only hold up to 2 values")
		return r.Errors
	}
	for i, cidr := range c.Spec.CIDRs {
		r.Add(validation.IsValidCIDR(path.Index(i), cidr)...)
	}
	if len(c.Spec.CIDRs) == maxCIDRs {
		if family := netutils.IPFamilyOfCIDRString(c.Spec.CIDRs[0]); family != netutils.IPFamilyUnknown && family == netutils.IPFamilyOfCIDRString(c.Spec.CIDRs[1]) {
			r.Invalid(path, c.Spec.CIDRs, perIP)
		}
	}
	return r.Errors
}

// validateServiceCIDRUpdate lets a range of the other family be added, and
// nothing be taken away: addresses are in use. What is as long as before is not
// judged again: it may have been let in by rules that were less strict.
func validateServiceCIDRUpdate(ctx context.Context, c, old *networkingv1.ServiceCIDR) field.ErrorList {
	r, path := &report.Report{}, field.NewPath("spec", "cidrs")
	now, was := len(c.Spec.CIDRs), len(old.Spec.CIDRs)
	switch {
	case now == was, was == 1 && now == maxCIDRs:
		for i, cidr := range old.Spec.CIDRs {
			r.Immutable(path.Index(i), c.Spec.CIDRs[i], cidr)
		}
	default:
		r.Immutable(path, c.Spec.CIDRs, old.Spec.CIDRs)
	}
	if was == 1 && now == maxCIDRs {
		r.Add(validateServiceCIDR(ctx, c)...)
	}
	return r.Errors
}
