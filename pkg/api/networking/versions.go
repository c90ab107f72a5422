// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/older"
)

const olderForm = "networking.k8s.io/v1beta1 %s is deprecated in v1.34+, unavailable in v1.37+"

func ipAddressVersions() []resource.Version {
	v := older.Version{
		Name: "v1beta1", Deprecated: fmt.Sprintf(olderForm, "IPAddress"),
		Stored: &networkingv1.IPAddress{}, Object: &networkingv1beta1.IPAddress{}, List: &networkingv1beta1.IPAddressList{},
		Convert: convertIPAddress,
	}
	return []resource.Version{v.Row()}
}

func serviceCIDRVersions() []resource.Version {
	v := older.Version{
		Name: "v1beta1", Deprecated: fmt.Sprintf(olderForm, "ServiceCIDR"),
		Stored: &networkingv1.ServiceCIDR{}, Object: &networkingv1beta1.ServiceCIDR{}, List: &networkingv1beta1.ServiceCIDRList{},
		Convert: convertServiceCIDR,
	}
	return []resource.Version{v.Row()}
}

func convertIPAddress(in, out resource.Object) error {
	if in, ok := in.(*networkingv1.IPAddress); ok {
		if out, ok := out.(*networkingv1beta1.IPAddress); ok {
			out.ObjectMeta, out.Spec.ParentRef = in.ObjectMeta, (*networkingv1beta1.ParentReference)(in.Spec.ParentRef)
			return nil
		}
	}
	if in, ok := in.(*networkingv1beta1.IPAddress); ok {
		if out, ok := out.(*networkingv1.IPAddress); ok {
			out.ObjectMeta, out.Spec.ParentRef = in.ObjectMeta, (*networkingv1.ParentReference)(in.Spec.ParentRef)
			return nil
		}
	}
	return fmt.Errorf("%T does not become %T", in, out)
}

func convertServiceCIDR(in, out resource.Object) error {
	if in, ok := in.(*networkingv1.ServiceCIDR); ok {
		if out, ok := out.(*networkingv1beta1.ServiceCIDR); ok {
			out.ObjectMeta, out.Spec, out.Status = in.ObjectMeta, networkingv1beta1.ServiceCIDRSpec(in.Spec), networkingv1beta1.ServiceCIDRStatus(in.Status)
			return nil
		}
	}
	if in, ok := in.(*networkingv1beta1.ServiceCIDR); ok {
		if out, ok := out.(*networkingv1.ServiceCIDR); ok {
			out.ObjectMeta, out.Spec, out.Status = in.ObjectMeta, networkingv1.ServiceCIDRSpec(in.Spec), networkingv1.ServiceCIDRStatus(in.Status)
			return nil
		}
	}
	return fmt.Errorf("%T does not become %T", in, out)
}
