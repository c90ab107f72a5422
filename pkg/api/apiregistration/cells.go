// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiregistration

import (
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"keelson.dev/apiserver/resource"
)

func apiServiceCells(s *apiregistrationv1.APIService, env resource.CellEnv) []any {
	service := "Local"
	if s.Spec.Service != nil {
		service = s.Spec.Service.Namespace + "/" + s.Spec.Service.Name
	}
	status := string(apiregistrationv1.ConditionUnknown)
	for _, c := range s.Status.Conditions {
		if c.Type != apiregistrationv1.Available {
			continue
		}
		status = string(c.Status)
		if c.Status != apiregistrationv1.ConditionTrue && c.Reason != "" {
			status += " (" + c.Reason + ")"
		}
		break
	}
	return []any{s.Name, service, status, env.Age(s.CreationTimestamp)}
}
