// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report collects what validation finds, in the order in which it finds
// it, with the reasons and the wording that Kubernetes gives them. A message shows
// a bad value as JSON with the API's field names; Kubernetes 1.36 shows some with the
// names of its Go fields.
package report

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
)

// Report is a list of errors that grows. The zero Report is empty and ready.
type Report struct{ Errors field.ErrorList }

// Add appends errors found elsewhere; nil ones are skipped.
func (r *Report) Add(errs ...*field.Error) {
	for _, err := range errs {
		if err != nil {
			r.Errors = append(r.Errors, err)
		}
	}
}

// Required reports a field that must be set. Detail may be empty.
func (r *Report) Required(path *field.Path, detail string) { r.Add(field.Required(path, detail)) }

// Invalid reports a value that cannot be.
func (r *Report) Invalid(path *field.Path, value any, detail string) {
	r.Add(field.Invalid(path, value, detail))
}

// Forbidden reports a field that may not be set here.
func (r *Report) Forbidden(path *field.Path, detail string) { r.Add(field.Forbidden(path, detail)) }

// Duplicate reports a value that is there twice.
func (r *Report) Duplicate(path *field.Path, value any) { r.Add(field.Duplicate(path, value)) }

// NotFound reports a reference to what is not there.
func (r *Report) NotFound(path *field.Path, value any) { r.Add(field.NotFound(path, value)) }

// TooLong reports a string of more than limit bytes.
func (r *Report) TooLong(path *field.Path, limit int) { r.Add(field.TooLong(path, "", limit)) }

// TooMany reports a list of n where limit may be.
func (r *Report) TooMany(path *field.Path, n, limit int) { r.Add(field.TooMany(path, n, limit)) }

// Each reports value once for every reason that speaks against it.
func (r *Report) Each(path *field.Path, value any, reasons []string) {
	for _, reason := range reasons {
		r.Invalid(path, value, reason)
	}
}

// OneOf reports a value that is not among those supported.
func OneOf[T ~string](r *Report, path *field.Path, value T, supported ...T) {
	if !slices.Contains(supported, value) {
		r.Add(field.NotSupported(path, value, supported))
	}
}

// OneOfRequired is OneOf, but reports an empty value as missing.
func OneOfRequired[T ~string](r *Report, path *field.Path, value T, supported ...T) {
	if value == "" {
		r.Required(path, "")
		return
	}
	OneOf(r, path, value, supported...)
}

// Label reports what is no DNS label.
func (r *Report) Label(path *field.Path, value string) {
	r.Each(path, value, naming.IsDNS1123Label(value))
}

// Subdomain reports what is no DNS subdomain.
func (r *Report) Subdomain(path *field.Path, value string) {
	r.Each(path, value, naming.IsDNS1123Subdomain(value))
}

// QualifiedName reports what is no qualified name, as label keys are.
func (r *Report) QualifiedName(path *field.Path, value string) {
	r.Each(path, value, naming.IsQualifiedName(value))
}

// RequiredLabel is Label, but reports an empty value as missing.
func (r *Report) RequiredLabel(path *field.Path, value string) {
	if value == "" {
		r.Required(path, "")
		return
	}
	r.Label(path, value)
}

// LabelName reports what cannot be a label's key.
func (r *Report) LabelName(path *field.Path, value string) {
	if len(naming.IsQualifiedName(value)) > 0 {
		r.Add(metav1validation.ValidateLabelName(value, path)...)
	}
}

// Labels reports keys and values that cannot be labels.
func (r *Report) Labels(path *field.Path, labels map[string]string) {
	if !naming.LabelsOK(labels) {
		r.Add(metav1validation.ValidateLabels(labels, path)...)
	}
}

// Annotations reports annotations that cannot be, or are too large together.
func (r *Report) Annotations(path *field.Path, annotations map[string]string) {
	if !naming.AnnotationsOK(annotations) {
		r.Add(apivalidation.ValidateAnnotations(annotations, path)...)
	}
}

// Selector reports a label selector that selects by what cannot be a label.
func (r *Report) Selector(path *field.Path, s *metav1.LabelSelector) {
	r.Add(metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)...)
}

// NotNegative reports a number below zero.
func (r *Report) NotNegative(path *field.Path, value int64) {
	r.Add(apivalidation.ValidateNonnegativeField(value, path)...)
}

// Positive reports a number that is not above zero.
func (r *Report) Positive(path *field.Path, value int64) {
	if value <= 0 {
		r.Invalid(path, value, "must be greater than zero")
	}
}

// Quantity reports a quantity below zero.
func (r *Report) Quantity(path *field.Path, value resource.Quantity) {
	if value.Sign() < 0 {
		r.Invalid(path, value.String(), apivalidation.IsNegativeErrorMsg)
	}
}

// Immutable reports a field that differs from what it was.
func (r *Report) Immutable(path *field.Path, value, old any) {
	r.Add(apivalidation.ValidateImmutableField(value, old, path)...)
}

// Keys returns the keys of m in order, so that reports are the same every time.
func Keys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
