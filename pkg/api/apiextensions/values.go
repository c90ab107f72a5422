// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiextensions

import (
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// normalizeValues brings a definition that a client has written into the form that
// Kubernetes' type without a version has. The values of its schemas (defaults, enums,
// examples) are no bytes there: members come in order, numbers and texts in one
// spelling. One that cannot be brought there stays, for validation to say why.
func normalizeValues(crd *apiextensionsv1.CustomResourceDefinition) {
	var hub apiextensions.CustomResourceDefinition
	// The conversions alias their input, and give versions parts in common.
	if apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd.DeepCopy(), &hub, nil) != nil {
		return
	}
	var out apiextensionsv1.CustomResourceDefinition
	if apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(&hub, &out, nil) != nil {
		return
	}
	out.TypeMeta = crd.TypeMeta
	out.DeepCopyInto(crd)
}
