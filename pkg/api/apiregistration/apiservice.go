// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiregistration declares API services. An API service names an API group version that
// another server serves.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package apiregistration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/validation"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
func Rows() []*resource.Row {
	return []*resource.Row{
		apiServiceRow(),
	}
}

// apiServiceRow returns the row of the kind table for the resource apiservices.
func apiServiceRow() *resource.Row {
	row := resource.Of[apiregistrationv1.APIServiceList](resource.Kind[*apiregistrationv1.APIService]{
		Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices", Kind: "APIService",
		Categories:    []string{"api-extensions"},
		StoragePrefix: "apiregistration.k8s.io/apiservices",

		Default:        defaultAPIService,
		PrepareCreate:  prepareAPIServiceCreate,
		PrepareUpdate:  prepareAPIServiceUpdate,
		ValidateName:   nameAPIService,
		ResetFields:    []string{"status"},
		AnyFinalizer:   true,
		Validate:       validateAPIService,
		ValidateUpdate: validateAPIServiceUpdate,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Service", Type: "string", Description: "The reference to the service that hosts this API endpoint."},
			{Name: "Available", Type: "string", Description: "Whether this service is available."},
			column.Age(),
		},
		Cells: apiServiceCells,

		Subresources: []resource.Sub[*apiregistrationv1.APIService]{
			{Subresource: strategy.View("status", "spec", "metadata").WithoutTable(),
				PrepareUpdate: prepareAPIServiceStatus, ValidateUpdate: validateAPIServiceStatus},
		},
	})
	row.Codec = codec{registry.Codec(row)}
	return row
}

func nameAPIService(name string, prefix bool) []string {
	return path.ValidatePathSegmentName(name, prefix)
}

const servicePort int32 = 443

func defaultAPIService(s *apiregistrationv1.APIService) {
	if s.Spec.Service != nil {
		unset.Point(&s.Spec.Service.Port, servicePort)
	}
}

// prepareAPIServiceCreate clears the status. It then marks an API service without a backend service
// as available, because this server serves its group itself.
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

func validateAPIService(ctx context.Context, s *apiregistrationv1.APIService) field.ErrorList {
	return validateWith(func(in ...*apiregistration.APIService) field.ErrorList {
		return validation.ValidateAPIService(ctx, in[0])
	}, s)
}

func validateAPIServiceUpdate(ctx context.Context, s, old *apiregistrationv1.APIService) field.ErrorList {
	return validateWith(func(in ...*apiregistration.APIService) field.ErrorList {
		return validation.ValidateAPIServiceUpdate(ctx, in[0], in[1])
	}, s, old)
}

func validateAPIServiceStatus(ctx context.Context, s, old *apiregistrationv1.APIService) field.ErrorList {
	return validateWith(func(in ...*apiregistration.APIService) field.ErrorList {
		return validation.ValidateAPIServiceStatusUpdate(ctx, in[0], in[1])
	}, s, old)
}

// validateWith converts services to the unversioned type and validates them with the given function
// of the aggregator's library.
func validateWith(by func(...*apiregistration.APIService) field.ErrorList,
	services ...*apiregistrationv1.APIService) field.ErrorList {
	in := make([]*apiregistration.APIService, len(services))
	for i, s := range services {
		in[i] = &apiregistration.APIService{}
		if err := apiregistrationv1.Convert_v1_APIService_To_apiregistration_APIService(s.DeepCopy(), in[i],
			nil); err != nil {
			return field.ErrorList{field.InternalError(nil, fmt.Errorf("convert %s: %w", s.Name, err))}
		}
	}
	// The server has already checked the metadata, as it does for every kind. Only errors about the
	// name that mention spec.version come from a rule that is special to API services.
	return slices.DeleteFunc(by(in...), func(err *field.Error) bool {
		return strings.HasPrefix(err.Field, "metadata.") && !strings.Contains(err.Detail, "spec.version")
	})
}

// codec stores API services as JSON, as Kubernetes does. It also reads protobuf.
type codec struct{ store.Codec }

// Encode returns the stored form of obj. It does not change obj.
func (codec) Encode(obj store.Object) ([]byte, error) {
	service, ok := obj.(*apiregistrationv1.APIService)
	if !ok {
		return nil, fmt.Errorf("encode %T: not an API service", obj)
	}
	out := *service
	out.TypeMeta = metav1.TypeMeta{APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService"}
	out.ResourceVersion = ""
	var data bytes.Buffer
	err := json.NewEncoder(&data).Encode(&out)
	return data.Bytes(), err
}

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
