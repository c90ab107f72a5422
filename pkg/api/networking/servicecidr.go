// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"context"
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/older"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// serviceCIDRRow returns the row of the kind table for the resource servicecidrs.
func serviceCIDRRow() *resource.Row {
	parts := strategy.Parts[networkingv1.ServiceCIDR, networkingv1.ServiceCIDRSpec,
		networkingv1.ServiceCIDRStatus](func(o *networkingv1.ServiceCIDR) (*networkingv1.ServiceCIDRSpec,
		*networkingv1.ServiceCIDRStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[networkingv1.ServiceCIDRList](resource.Kind[*networkingv1.ServiceCIDR]{
		Group: "networking.k8s.io", Version: "v1",
		Versions: append([]resource.Version{{Name: "v1"}}, serviceCIDRVersions()...),
		Resource: "servicecidrs", Kind: "ServiceCIDR",

		PrepareCreate:            parts.ClearStatus,
		PrepareUpdate:            parts.KeepStatus,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		Validate:                 validateServiceCIDR,
		ValidateUpdate:           validateServiceCIDRUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "CIDRs", Type: "string", Description: networkingv1.ServiceCIDRSpec{}.SwaggerDoc()["cidrs"]},
			column.Age(),
		},
		Cells: serviceCIDRCells,

		Subresources: []resource.Sub[*networkingv1.ServiceCIDR]{
			{Subresource: strategy.View("status", "spec", "metadata"), PrepareUpdate: parts.KeepSpecAndMeta},
		},
	})
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
		// As in Kubernetes, the message shows the value as a JSON object with the name of its Go
		// field.
		r.Invalid(path, struct{ CIDRs []string }{c.Spec.CIDRs}, "may only hold up to 2 values")
		return r.Errors
	}
	for i, cidr := range c.Spec.CIDRs {
		r.Add(validation.IsValidCIDR(path.Index(i), cidr)...)
	}
	if len(c.Spec.CIDRs) == maxCIDRs {
		if family := netutils.IPFamilyOfCIDRString(c.Spec.CIDRs[0]); family != netutils.IPFamilyUnknown &&
			family == netutils.IPFamilyOfCIDRString(c.Spec.CIDRs[1]) {
			r.Invalid(path, c.Spec.CIDRs, perIP)
		}
	}
	return r.Errors
}

// validateServiceCIDRUpdate lets a client add a range of the other IP family. A range cannot be
// changed or removed, because services can have addresses in it. If an update adds no range, the
// stored ranges are not validated again, because they may have been accepted by older, less strict
// rules.
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

func serviceCIDRCells(c *networkingv1.ServiceCIDR, env resource.CellEnv) []any {
	return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), env.Age(c.CreationTimestamp)}
}

func serviceCIDRVersions() []resource.Version {
	v := older.Version{
		Name: "v1beta1", Deprecated: fmt.Sprintf(olderForm, "ServiceCIDR"),
		Stored: &networkingv1.ServiceCIDR{}, Object: &networkingv1beta1.ServiceCIDR{},
		List:    &networkingv1beta1.ServiceCIDRList{},
		Convert: convertServiceCIDR,
		Removed: 37,
	}
	return []resource.Version{v.Row()}
}

func convertServiceCIDR(in, out resource.Object) error {
	if in, ok := in.(*networkingv1.ServiceCIDR); ok {
		if out, ok := out.(*networkingv1beta1.ServiceCIDR); ok {
			out.ObjectMeta, out.Spec, out.Status = in.ObjectMeta, networkingv1beta1.ServiceCIDRSpec(in.Spec),
				networkingv1beta1.ServiceCIDRStatus(in.Status)
			return nil
		}
	}
	if in, ok := in.(*networkingv1beta1.ServiceCIDR); ok {
		if out, ok := out.(*networkingv1.ServiceCIDR); ok {
			out.ObjectMeta, out.Spec, out.Status = in.ObjectMeta, networkingv1.ServiceCIDRSpec(in.Spec),
				networkingv1.ServiceCIDRStatus(in.Status)
			return nil
		}
	}
	return fmt.Errorf("cannot convert %T to %T", in, out)
}
