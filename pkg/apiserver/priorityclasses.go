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

// priorityClassHooks refuse to delete the priority classes that the system's own
// pods have: without them no such pod can be created. Kubernetes refuses a single
// delete and lets the same class go with a collection; here neither deletes it.
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
