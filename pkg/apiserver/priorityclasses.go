// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/scheduling"
)

// priorityClassHooks reject deletion of the built-in priority classes, because system pods cannot
// be created without them. Kubernetes rejects only a single delete and allows deletecollection; here
// both are rejected.
func priorityClassHooks() registry.Hooks {
	return registry.Hooks{
		BeforeDelete: func(_ context.Context, obj resource.Object, _ *metav1.DeleteOptions) error {
			if !scheduling.IsSystemClass(obj.GetName()) {
				return nil
			}
			return apierrors.NewForbidden(schedulingv1.Resource("priorityclasses"), obj.GetName(),
				errors.New("this is a system priority class and cannot be deleted"))
		},
	}
}
