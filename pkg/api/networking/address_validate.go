// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"context"
	"slices"

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
	case n == maxCIDRs:
		if dual, err := netutils.IsDualStackCIDRStrings(c.Spec.CIDRs); err == nil && !dual {
			r.Invalid(path, c.Spec.CIDRs, perIP)
		}
	}
	for i, cidr := range c.Spec.CIDRs {
		r.Add(validation.IsValidCIDR(path.Index(i), cidr)...)
	}
	return r.Errors
}

// validateServiceCIDRUpdate lets a range of the other family be added, and
// nothing be taken away: addresses are in use.
func validateServiceCIDRUpdate(ctx context.Context, c, old *networkingv1.ServiceCIDR) field.ErrorList {
	r, path := &report.Report{}, field.NewPath("spec", "cidrs")
	if len(old.Spec.CIDRs) == 1 && len(c.Spec.CIDRs) == maxCIDRs && c.Spec.CIDRs[0] == old.Spec.CIDRs[0] {
		return validateServiceCIDR(ctx, c)
	}
	if len(c.Spec.CIDRs) == len(old.Spec.CIDRs) {
		for i, cidr := range c.Spec.CIDRs {
			r.Immutable(path.Index(i), cidr, old.Spec.CIDRs[i])
		}
		return r.Errors
	}
	if !slices.Equal(c.Spec.CIDRs, old.Spec.CIDRs) {
		r.Immutable(path, c.Spec.CIDRs, old.Spec.CIDRs)
	}
	return r.Errors
}
