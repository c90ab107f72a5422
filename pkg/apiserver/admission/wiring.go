// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"k8s.io/apimachinery/pkg/api/meta"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/featuregate"
)

// gates are what the library's plugins may ask for: its own defaults.
func gates() featuregate.FeatureGate { return utilfeature.DefaultFeatureGate }

// mapper relates the built-in kinds to their resources.
func mapper(Deps) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(scheme.Scheme.PrioritizedVersionsAllGroups())
	for gvk := range scheme.Scheme.AllKnownTypes() {
		m.Add(gvk, meta.RESTScopeNamespace)
	}
	return m
}
