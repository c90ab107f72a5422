// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiregistration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/validation"
)

func validateAPIService(_ context.Context, s *apiregistrationv1.APIService) field.ErrorList {
	return judge(func(in ...*apiregistration.APIService) field.ErrorList { return validation.ValidateAPIService(in[0]) }, s)
}

func validateAPIServiceUpdate(_ context.Context, s, old *apiregistrationv1.APIService) field.ErrorList {
	return judge(func(in ...*apiregistration.APIService) field.ErrorList {
		return validation.ValidateAPIServiceUpdate(in[0], in[1])
	}, s, old)
}

func validateAPIServiceStatus(_ context.Context, s, old *apiregistrationv1.APIService) field.ErrorList {
	return judge(func(in ...*apiregistration.APIService) field.ErrorList {
		return validation.ValidateAPIServiceStatusUpdate(in[0], in[1])
	}, s, old)
}

// judge lets the aggregator's library judge, which knows the type without a version.
func judge(by func(...*apiregistration.APIService) field.ErrorList, services ...*apiregistrationv1.APIService) field.ErrorList {
	in := make([]*apiregistration.APIService, len(services))
	for i, s := range services {
		in[i] = &apiregistration.APIService{}
		if err := apiregistrationv1.Convert_v1_APIService_To_apiregistration_APIService(s.DeepCopy(), in[i], nil); err != nil {
			return field.ErrorList{field.InternalError(nil, fmt.Errorf("convert %s: %w", s.Name, err))}
		}
	}
	// The server has judged the metadata before, as it does that of every kind.
	return slices.DeleteFunc(by(in...), func(err *field.Error) bool {
		return strings.HasPrefix(err.Field, "metadata.") && !strings.Contains(err.Detail, "spec.version")
	})
}
