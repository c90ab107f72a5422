// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"keelson.dev/apiserver/openapi"
	"keelson.dev/apiserver/rest"
)

// typeConverter has the schemas of all built-in kinds for managedFields. client-go has most of
// them. The schemas of CustomResourceDefinitions, APIServices, reviews, bindings and scales come
// from the OpenAPI definitions. Each source is read when it is first needed.
type typeConverter struct {
	kinds, extensions func() (managedfields.TypeConverter, error)
}

func newTypeConverter(scheme *runtime.Scheme, source rest.OpenAPI) managedfields.TypeConverter {
	return &typeConverter{
		kinds:      sync.OnceValues(func() (managedfields.TypeConverter, error) { return readKinds(scheme) }),
		extensions: sync.OnceValues(func() (managedfields.TypeConverter, error) { return readExtensions(source) }),
	}
}

// ObjectToTyped converts an object by the schema of its kind.
func (t *typeConverter) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (
	*typed.TypedValue, error) {
	read := t.kinds
	if defined(obj.GetObjectKind().GroupVersionKind()) {
		read = t.extensions
	}
	converter, err := read()
	if err != nil {
		return nil, err
	}
	return converter.ObjectToTyped(obj, options...)
}

// defined reports whether the schema of a kind comes from the OpenAPI definitions, because
// client-go does not have the kind.
func defined(gvk schema.GroupVersionKind) bool {
	switch gvk.Group {
	case apiextensionsv1.GroupName, apiregistrationv1.GroupName, authenticationv1.GroupName, authorizationv1.GroupName:
		return true
	}
	return gvk == corev1.SchemeGroupVersion.WithKind("Binding") ||
		gvk == autoscalingv1.SchemeGroupVersion.WithKind("Scale")
}

// TypedToObject converts a value back to an object. The conversion is the same for every kind, so
// the converter of client-go's kinds is used for all of them.
func (t *typeConverter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	converter, err := t.kinds()
	if err != nil {
		return nil, err
	}
	return converter.TypedToObject(value)
}

// readKinds reads client-go's schemas, which are generated from OpenAPI v2. Kubernetes uses schemas
// generated from OpenAPI v3, which accept any value for an IntOrString, so Kubernetes rejects an
// object there only when it decodes the request. readKinds therefore changes client-go's schemas, so
// that they accept any value too.
func readKinds(scheme *runtime.Scheme) (managedfields.TypeConverter, error) {
	sample, err := applyconfigurations.NewTypeConverter(scheme).ObjectToTyped(
		&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}})
	if err != nil {
		return nil, fmt.Errorf("schemas of client-go: %w", err)
	}
	theirs := sample.Schema()
	untyped, ok := theirs.FindNamedType("__untyped_atomic_")
	if !ok {
		return nil, errors.New("schemas of client-go: no untyped values")
	}
	parser := &typed.Parser{Schema: smd.Schema{Types: slices.Clone(theirs.Types)}}
	for i := range parser.Schema.Types {
		if t := &parser.Schema.Types[i]; t.Name == "io.k8s.apimachinery.pkg.util.intstr.IntOrString" {
			t.Atom = untyped.Atom
		}
	}
	return managedfields.NewSchemeTypeConverter(scheme, parser), nil
}

func readExtensions(source rest.OpenAPI) (managedfields.TypeConverter, error) {
	doc, err := source.Definitions(3)
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
