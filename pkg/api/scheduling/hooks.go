// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"context"
	"errors"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

// priorityClassHooks reject deletion of the built-in priority classes, because system pods cannot
// be created without them. Kubernetes rejects only a single delete and allows deletecollection; here
// both are rejected.
func priorityClassHooks() resource.Hooks[*schedulingv1.PriorityClass] {
	return resource.Hooks[*schedulingv1.PriorityClass]{
		BeforeDelete: func(_ context.Context, class *schedulingv1.PriorityClass, _ *metav1.DeleteOptions) error {
			if !IsSystemClass(class.Name) {
				return nil
			}
			return apierrors.NewForbidden(schedulingv1.Resource("priorityclasses"), class.Name,
				errors.New("this is a system priority class and cannot be deleted"))
		},
	}
}
