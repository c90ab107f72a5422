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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/older"
	"keelson.dev/keelson/pkg/api/report"
)

// ipAddressRow returns the row of the kind table for the resource ipaddresses.
func ipAddressRow() *resource.Row {
	return resource.Of[networkingv1.IPAddressList](resource.Kind[*networkingv1.IPAddress]{
		Group: "networking.k8s.io", Version: "v1",
		Versions: append([]resource.Version{{Name: "v1"}}, ipAddressVersions()...), Resource: "ipaddresses",
		Kind:       "IPAddress",
		ShortNames: []string{"ip"},

		ValidateName:             nameIPAddress,
		AllowUnconditionalUpdate: true,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		Validate:                 validateIPAddress,
		ValidateUpdate:           validateIPAddressUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "ParentRef", Type: "string", Description: networkingv1.IPAddressSpec{}.SwaggerDoc()["parentRef"]},
		},
		Cells: ipAddressCells,
	})
}

// nameIPAddress requires that the name is an IP address in canonical form.
func nameIPAddress(name string, _ bool) []string {
	var reasons []string
	for _, err := range validation.IsValidIP(nil, name) {
		reasons = append(reasons, err.Detail)
	}
	return reasons
}

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
	r := &report.Report{Errors: validateIPAddress(ctx, a)}
	r.Immutable(field.NewPath("spec").Child("parentRef"), a.Spec.ParentRef, old.Spec.ParentRef)
	return r.Errors
}

// ipAddressCells returns the cells of an address. As in Kubernetes, there is one cell more than
// there are columns.
func ipAddressCells(a *networkingv1.IPAddress, env resource.CellEnv) []any {
	parent := column.None
	if ref := a.Spec.ParentRef; ref != nil {
		parent = strings.ToLower(schema.GroupResource{Group: ref.Group, Resource: ref.Resource}.String())
		if ref.Namespace != "" {
			parent += "/" + ref.Namespace
		}
		parent += "/" + ref.Name
	}
	return []any{a.Name, parent, env.Age(a.CreationTimestamp)}
}

func ipAddressVersions() []resource.Version {
	v := older.Version{
		Name: "v1beta1", Deprecated: fmt.Sprintf(olderForm, "IPAddress"),
		Stored: &networkingv1.IPAddress{}, Object: &networkingv1beta1.IPAddress{}, List: &networkingv1beta1.IPAddressList{},
		Convert: convertIPAddress,
		Removed: 37,
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
	return fmt.Errorf("cannot convert %T to %T", in, out)
}
