// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion returns the group and version of the kinds in this package.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: Version} }

// TypeMeta returns the TypeMeta of an object of kind, which is one of the kinds in this package.
func TypeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: GroupVersion().String(), Kind: kind}
}

// AddToScheme registers the kinds of this package in a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &BindingBatch{}, &VerdictBatch{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}

// DeepCopyObject implements runtime.Object.
func (in *BindingBatch) DeepCopyObject() runtime.Object {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Bindings, out.Results = slices.Clone(in.Bindings), slices.Clone(in.Results)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (in *VerdictBatch) DeepCopyObject() runtime.Object {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Verdicts, out.Results = slices.Clone(in.Verdicts), slices.Clone(in.Results)
	for i := range out.Verdicts {
		out.Verdicts[i].Victims = slices.Clone(out.Verdicts[i].Victims)
	}
	for i := range out.Results {
		out.Results[i].Victims = slices.Clone(out.Results[i].Victims)
	}
	return &out
}

// models is the prefix of the names of the kinds' OpenAPI definitions.
const models = "dev.keelson.api.scheduling.v1alpha1."

// OpenAPIModelName returns the name of the type's OpenAPI definition.
func (BindingBatch) OpenAPIModelName() string { return models + "BindingBatch" }

// OpenAPIModelName returns the name of the type's OpenAPI definition.
func (Binding) OpenAPIModelName() string { return models + "Binding" }

// OpenAPIModelName returns the name of the type's OpenAPI definition.
func (Result) OpenAPIModelName() string { return models + "Result" }

// OpenAPIModelName returns the name of the type's OpenAPI definition.
func (VerdictBatch) OpenAPIModelName() string { return models + "VerdictBatch" }

// OpenAPIModelName returns the name of the type's OpenAPI definition.
func (Verdict) OpenAPIModelName() string { return models + "Verdict" }

// OpenAPIModelName returns the name of the type's OpenAPI definition.
func (PodRef) OpenAPIModelName() string { return models + "PodRef" }

// OpenAPIModelName returns the name of the type's OpenAPI definition.
func (VerdictResult) OpenAPIModelName() string { return models + "VerdictResult" }
