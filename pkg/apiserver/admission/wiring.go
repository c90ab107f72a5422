// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"keelson.dev/apiserver/resource"
)

// gates are what the library's plugins may ask for: its own defaults.
func gates() featuregate.FeatureGate { return utilfeature.DefaultFeatureGate }

// Mapper relates the kinds of rows to their resources.
func Mapper(rows []*resource.Row) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, r := range rows {
		scope := meta.RESTScopeRoot
		if r.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		for _, v := range r.Versions {
			gv := schema.GroupVersion{Group: r.Group, Version: v.Name}
			m.AddSpecific(gv.WithKind(r.Kind), gv.WithResource(r.Resource), gv.WithResource(r.Singular), scope)
		}
	}
	return m
}
