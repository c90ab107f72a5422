// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"keelson.dev/apiserver/openapi"
	"keelson.dev/apiserver/rest"
)

// typeConverter gives managedFields the schemas of all built-in kinds: client-go
// has most of them, the kinds that extend the API, reviews, bindings and scales are
// in the OpenAPI definitions.
type typeConverter struct {
	managedfields.TypeConverter
	source rest.OpenAPI

	once       sync.Once
	extensions managedfields.TypeConverter
	err        error
}

func newTypeConverter(scheme *runtime.Scheme, source rest.OpenAPI) managedfields.TypeConverter {
	return &typeConverter{TypeConverter: applyconfigurations.NewTypeConverter(scheme), source: source}
}

// ObjectToTyped types an object by the schema of its kind.
func (t *typeConverter) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if !defined(obj.GetObjectKind().GroupVersionKind()) {
		return t.TypeConverter.ObjectToTyped(obj, options...)
	}
	if t.once.Do(func() { t.extensions, t.err = t.read() }); t.err != nil {
		return nil, t.err
	}
	return t.extensions.ObjectToTyped(obj, options...)
}

// defined reports whether client-go leaves out a kind that the OpenAPI definitions have.
func defined(gvk schema.GroupVersionKind) bool {
	switch gvk.Group {
	case apiextensionsv1.GroupName, apiregistrationv1.GroupName, authenticationv1.GroupName, authorizationv1.GroupName:
		return true
	}
	return gvk == corev1.SchemeGroupVersion.WithKind("Binding") || gvk == autoscalingv1.SchemeGroupVersion.WithKind("Scale")
}

func (t *typeConverter) read() (managedfields.TypeConverter, error) {
	doc, err := t.source.Definitions(3)
	if err != nil {
		return nil, err
	}
	defs, err := openapi.Parse(doc, 3)
	if err != nil {
		return nil, err
	}
	models, err := defs.Models(
		defs.Name(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")),
		defs.Name(apiregistrationv1.SchemeGroupVersion.WithKind("APIService")),
		defs.Name(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview")),
		defs.Name(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")),
		defs.Name(authenticationv1.SchemeGroupVersion.WithKind("TokenReview")),
		defs.Name(autoscalingv1.SchemeGroupVersion.WithKind("Scale")),
		defs.Name(corev1.SchemeGroupVersion.WithKind("Binding")),
		defs.Name(authorizationv1.SchemeGroupVersion.WithKind("LocalSubjectAccessReview")),
		defs.Name(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview")),
		defs.Name(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectRulesReview")),
		defs.Name(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview")),
	)
	if err != nil {
		return nil, fmt.Errorf("schemas of extensions: %w", err)
	}
	return managedfields.NewTypeConverter(models, false)
}
