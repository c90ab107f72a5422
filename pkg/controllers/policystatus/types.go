// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// knownTypes provides the types for one check of a policy. The library skips a type that it cannot
// get. failure is the first error of getting a type, except for types that do not exist. Without
// this check, a policy might be reported as correct only because the API server was busy.
type knownTypes struct {
	meta.ResettableRESTMapper
	schemas resolver.SchemaResolver
	failure error
}

// KindsFor implements meta.RESTMapper.
func (k *knownTypes) KindsFor(gvr schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	kinds, err := k.ResettableRESTMapper.KindsFor(gvr)
	if !meta.IsNoMatchError(err) {
		k.failed(err)
	}
	return kinds, err
}

// ResolveSchema implements resolver.SchemaResolver.
func (k *knownTypes) ResolveSchema(gvk schema.GroupVersionKind) (*spec.Schema, error) {
	s, err := k.schemas.ResolveSchema(gvk)
	if !errors.Is(err, resolver.ErrSchemaNotFound) {
		k.failed(err)
	}
	return s, err
}

func (k *knownTypes) failed(err error) {
	if k.failure == nil {
		k.failure = err
	}
}
