// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// deviceHooks keep devices that others use to administrators: claims of them
// are for namespaces that say so. Claims never change what they ask for.
func deviceHooks(client kubernetes.Interface, rows []*resource.Row) map[schema.GroupResource]registry.Hooks {
	hooks := map[schema.GroupResource]registry.Hooks{}
	for _, row := range rows {
		switch row.New().(type) {
		case *resourcev1.ResourceClaim, *resourcev1.ResourceClaimTemplate:
			hooks[row.GroupResource()] = registry.Hooks{BeforeCreate: func(ctx context.Context, obj resource.Object, _ bool) (func(bool), error) {
				errs := adminAccess(ctx, client, obj)
				if len(errs) == 0 {
					return nil, nil
				}
				errs = append(errs, row.Validate(ctx, obj)...)
				return nil, apierrors.NewInvalid(row.GroupVersionKind().GroupKind(), obj.GetName(), errs)
			}}
		}
	}
	return hooks
}

func adminAccess(ctx context.Context, client kubernetes.Interface, obj resource.Object) field.ErrorList {
	var requests []resourcev1.DeviceRequest
	switch o := obj.(type) {
	case *resourcev1.ResourceClaim:
		requests = o.Spec.Devices.Requests
	case *resourcev1.ResourceClaimTemplate:
		requests = o.Spec.Spec.Devices.Requests
	}
	for i := range requests {
		if e := requests[i].Exactly; e == nil || e.AdminAccess == nil || !*e.AdminAccess {
			continue
		}
		path := field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess")
		ns, err := client.CoreV1().Namespaces().Get(ctx, obj.GetNamespace(), metav1.GetOptions{})
		if err != nil {
			return field.ErrorList{field.InternalError(path, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err))}
		}
		if ns.Labels[resourcev1.DRAAdminNamespaceLabelKey] != "true" {
			return field.ErrorList{field.Forbidden(path, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace", resourcev1.DRAAdminNamespaceLabelKey))}
		}
		return nil
	}
	return nil
}
