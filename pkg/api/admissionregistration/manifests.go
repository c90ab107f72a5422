// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionregistration

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// staticSuffix is the suffix of objects that a server reads from its own manifest files.
const staticSuffix = ".static.k8s.io"

// unreserved returns a function that runs rule and rejects names with the suffix that is reserved for
// manifest files.
func unreserved[T any](rule func(context.Context, *T) field.ErrorList) func(context.Context, *T) field.ErrorList {
	return func(ctx context.Context, obj *T) field.ErrorList {
		errs := rule(ctx, obj)
		if name := any(obj).(metav1.Object).GetName(); strings.HasSuffix(name, staticSuffix) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), name, fmt.Sprintf(
				"names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API",
				staticSuffix)))
		}
		return errs
	}
}

// ManifestRules sets the defaults of objects from manifest files, and validates them. It has the rules for
// objects that are created in the API, except for names.
type ManifestRules struct{ v *validator }

// NewManifestRules returns ManifestRules.
func NewManifestRules() ManifestRules { return ManifestRules{newValidator()} }

// Apply sets the defaults of an object, and returns an error if the object is invalid or of another group.
func (m ManifestRules) Apply(obj runtime.Object) error {
	switch o := obj.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		return apply("ValidatingWebhookConfiguration", o, defaultValidatingWebhookConfiguration, m.v.validatingWebhooks)
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		return apply("MutatingWebhookConfiguration", o, defaultMutatingWebhookConfiguration, m.v.mutatingWebhooks)
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return apply("ValidatingAdmissionPolicy", o, defaultValidatingAdmissionPolicy, m.v.validatingPolicy)
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return apply("MutatingAdmissionPolicy", o, defaultMutatingAdmissionPolicy, m.v.mutatingPolicy)
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return apply("ValidatingAdmissionPolicyBinding", o, defaultValidatingAdmissionPolicyBinding,
			validateValidatingBinding)
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		return apply("MutatingAdmissionPolicyBinding", o, defaultMutatingAdmissionPolicyBinding,
			validateMutatingBinding)
	}
	return fmt.Errorf("unsupported resource type %T", obj)
}

func apply[T any](kind string, obj *T, setDefaults func(*T),
	validate func(context.Context, *T) field.ErrorList) error {
	setDefaults(obj)
	meta := any(obj).(metav1.Object)
	errs := apivalidation.ValidateObjectMetaAccessor(meta, false, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))
	errs = append(errs, validate(context.Background(), obj)...)
	if len(errs) > 0 {
		return fmt.Errorf("%s %q: %w", kind, meta.GetName(), errs.ToAggregate())
	}
	return nil
}
