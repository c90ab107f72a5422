// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report collects what validation finds, in the order in which it finds
// it, with the reasons and the wording that Kubernetes gives them. A message shows
// a bad value as JSON with the API's field names; Kubernetes 1.36 shows some with the
// names of its Go fields.
package report

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel"
	netutils "k8s.io/utils/net"

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

// SegmentName judges the names of kinds that take any: what fits into a path.
func SegmentName(name string, prefix bool) []string {
	return path.ValidatePathSegmentName(name, prefix)
}

// LongName judges names that are DNS subdomains, for kinds whose prefixes of
// names have but to fit into a path and whose names' length is counted in bytes.
func LongName(name string, prefix bool) []string {
	if prefix {
		return SegmentName(name, prefix)
	}
	reasons := naming.NameIsDNSSubdomain(name, false)
	for i, reason := range reasons {
		reasons[i] = strings.Replace(reason, "no more than 253 characters", "no more than 253 bytes", 1)
	}
	return reasons
}

// Count is one of the counts in the status of what runs replicas.
type Count struct {
	Name string
	N    int32
}

// Counts judges the counts of a status each by itself.
func (r *Report) Counts(path *field.Path, counts ...Count) {
	for _, c := range counts {
		r.NotNegative(path.Child(c.Name), int64(c.N))
	}
}

// Replicas judges the counts of a status against the count of all replicas. The
// last two are the ready and the available ones.
func (r *Report) Replicas(path *field.Path, replicas int32, counts ...Count) {
	for _, c := range counts {
		if c.N > replicas {
			r.Invalid(path.Child(c.Name), c.N, "cannot be greater than status.replicas")
		}
	}
	ready, available := counts[len(counts)-2], counts[len(counts)-1]
	if available.N > ready.N {
		r.Invalid(path.Child(available.Name), available.N, "cannot be greater than readyReplicas")
	}
}

// NotDecremented reports a counter that went back or was lost. One that there was
// not may begin anywhere.
func (r *Report) NotDecremented(path *field.Path, is, was *int32) {
	switch {
	case was == nil:
	case is == nil:
		r.Invalid(path, int32(0), "cannot be decremented")
	case *is < *was:
		r.Invalid(path, *is, "cannot be decremented")
	}
}

// IntOrPercent reports what is neither a number that is not negative nor a percentage.
func (r *Report) IntOrPercent(path *field.Path, value intstr.IntOrString) {
	if value.Type == intstr.String {
		r.Each(path, value, validation.IsValidPercent(value.StrVal))
		return
	}
	r.NotNegative(path, int64(value.IntValue()))
}

// AtMostAll reports a percentage above 100.
func (r *Report) AtMostAll(path *field.Path, value intstr.IntOrString) {
	if n, ok := percent(value); ok && n > 100 {
		r.Invalid(path, value, "must not be greater than 100%")
	}
}

// IsZero is true of 0 and of 0%.
func IsZero(value intstr.IntOrString) bool {
	if n, ok := percent(value); ok {
		return n == 0
	}
	return value.IntValue() == 0
}

func percent(value intstr.IntOrString) (int, bool) {
	if value.Type != intstr.String || len(validation.IsValidPercent(value.StrVal)) > 0 {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSuffix(value.StrVal, "%"))
	return n, err == nil
}

// EndpointIP reports an address that no endpoint can have.
func (r *Report) EndpointIP(path *field.Path, address string) {
	ip := netutils.ParseIPSloppy(address)
	if ip == nil {
		r.Invalid(path, address, "must be a valid IP address")
		return
	}
	if ip.IsUnspecified() {
		r.Invalid(path, address, fmt.Sprintf("may not be unspecified (%v)", address))
	}
	if ip.IsLoopback() {
		r.Invalid(path, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
	}
	if ip.IsLinkLocalUnicast() {
		r.Invalid(path, address, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
	}
	if ip.IsLinkLocalMulticast() {
		r.Invalid(path, address, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
	}
}

// Expression reports why an expression of CEL does not compile.
func (r *Report) Expression(path *field.Path, expression string, err error) {
	var celErr *cel.Error
	if !errors.As(err, &celErr) {
		r.Add(field.InternalError(path, fmt.Errorf("unsupported error type: %w", err)))
		return
	}
	switch celErr.Type {
	case cel.ErrorTypeRequired:
		r.Required(path, celErr.Detail)
	case cel.ErrorTypeInvalid:
		r.Invalid(path, expression, celErr.Detail)
	case cel.ErrorTypeInternal:
		r.Add(field.InternalError(path, celErr))
	default:
		r.Add(field.InternalError(path, fmt.Errorf("unsupported error type: %w", err)))
	}
}

// TemplateMeta judges the metadata that objects are made with: labels and
// annotations, and nothing else.
func (r *Report) TemplateMeta(path *field.Path, meta *metav1.ObjectMeta) {
	r.Annotations(path.Child("annotations"), meta.Annotations)
	r.Labels(path.Child("labels"), meta.Labels)
	v := reflect.ValueOf(*meta)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name != "Annotations" && name != "Labels" && !v.Field(i).IsZero() {
			r.Forbidden(path.Child(strings.ToLower(name[:1])+name[1:]), "cannot be set")
		}
	}
}
