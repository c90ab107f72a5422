// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiregistration

import (
	"context"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"keelson.dev/keelson/pkg/api/unset"
)

const servicePort int32 = 443

func defaultAPIService(s *apiregistrationv1.APIService) {
	if s.Spec.Service != nil {
		unset.Point(&s.Spec.Service.Port, servicePort)
	}
}

// prepareAPIServiceCreate says of a group that this server serves itself that it
// is available.
func prepareAPIServiceCreate(_ context.Context, s *apiregistrationv1.APIService) {
	s.Status = apiregistrationv1.APIServiceStatus{}
	if s.Spec.Service == nil {
		s.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
			Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue,
			Reason: "Local", Message: "Local APIServices are always available",
			LastTransitionTime: s.CreationTimestamp,
		}}
	}
}

func prepareAPIServiceUpdate(_ context.Context, s, old *apiregistrationv1.APIService) {
	s.Status = old.Status
}

func prepareAPIServiceStatus(_ context.Context, s, old *apiregistrationv1.APIService) {
	s.Spec = old.Spec
	s.Labels, s.Annotations = old.Labels, old.Annotations
	s.Finalizers, s.OwnerReferences = old.Finalizers, old.OwnerReferences
}
