// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiextensions

import (
	"context"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

const servicePort int32 = 443

// completeCustomResourceDefinition is what happens to a definition on its way in.
func completeCustomResourceDefinition(crd *apiextensionsv1.CustomResourceDefinition) {
	defaultCustomResourceDefinition(crd)
	normalizeValues(crd)
}

func defaultCustomResourceDefinition(crd *apiextensionsv1.CustomResourceDefinition) {
	names := &crd.Spec.Names
	unset.Fill(&names.Singular, strings.ToLower(names.Kind))
	if names.ListKind == "" && names.Kind != "" {
		names.ListKind = names.Kind + "List"
	}
	unset.Point(&crd.Spec.Conversion, apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter})
	if w := crd.Spec.Conversion.Webhook; w != nil && w.ClientConfig != nil && w.ClientConfig.Service != nil {
		unset.Point(&w.ClientConfig.Service.Port, servicePort)
	}
	if len(crd.Status.StoredVersions) == 0 {
		for _, v := range crd.Spec.Versions {
			if v.Storage {
				crd.Status.StoredVersions = append(crd.Status.StoredVersions, v.Name)
			}
		}
	}
}

func prepareCustomResourceDefinitionCreate(_ context.Context, crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	crd.Generation = 1
	recordStorageVersion(crd)
}

func prepareCustomResourceDefinitionUpdate(_ context.Context, crd, old *apiextensionsv1.CustomResourceDefinition) {
	crd.Status = *old.Status.DeepCopy()
	strategy.Count(crd, old, equality.Semantic.DeepEqual(crd.Spec, old.Spec))
	recordStorageVersion(crd)
}

// recordStorageVersion remembers a version that objects may be stored in from now on.
func recordStorageVersion(crd *apiextensionsv1.CustomResourceDefinition) {
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if i >= 0 && !slices.Contains(crd.Status.StoredVersions, crd.Spec.Versions[i].Name) {
		crd.Status.StoredVersions = append(crd.Status.StoredVersions, crd.Spec.Versions[i].Name)
	}
}

// prepareCustomResourceDefinitionStatus keeps the spec. Metadata can be written
// through the status, as in Kubernetes.
func prepareCustomResourceDefinitionStatus(_ context.Context, crd, old *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec = old.Spec
}
