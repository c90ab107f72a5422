// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report collects the findings of validation in the order in which they are made, with the
// reasons and messages of Kubernetes. Messages show invalid values as JSON with the API's field
// names, while Kubernetes 1.36 shows some values with the names of Go fields.
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

// Report is a list of findings. The zero Report is empty and ready to use.
type Report struct{ Errors field.ErrorList }

// Add appends errors and skips nil ones.
func (r *Report) Add(errs ...*field.Error) {
	for _, err := range errs {
		if err != nil {
			r.Errors = append(r.Errors, err)
		}
	}
}

// Required reports a missing field. detail may be empty.
func (r *Report) Required(path *field.Path, detail string) { r.Add(field.Required(path, detail)) }

// Invalid reports an invalid value.
func (r *Report) Invalid(path *field.Path, value any, detail string) {
	r.Add(field.Invalid(path, value, detail))
}

// Forbidden reports a field that must not be set in this object.
func (r *Report) Forbidden(path *field.Path, detail string) { r.Add(field.Forbidden(path, detail)) }

// Duplicate reports a repeated value.
func (r *Report) Duplicate(path *field.Path, value any) { r.Add(field.Duplicate(path, value)) }

// NotFound reports a reference to something that does not exist.
func (r *Report) NotFound(path *field.Path, value any) { r.Add(field.NotFound(path, value)) }

// TooLong reports a string that is longer than limit bytes.
func (r *Report) TooLong(path *field.Path, limit int) { r.Add(field.TooLong(path, "", limit)) }

// TooMany reports a list of n items that must have at most limit items.
func (r *Report) TooMany(path *field.Path, n, limit int) { r.Add(field.TooMany(path, n, limit)) }

// Each reports value once for each reason.
func (r *Report) Each(path *field.Path, value any, reasons []string) {
	for _, reason := range reasons {
		r.Invalid(path, value, reason)
	}
}

// OneOf reports a value that is not among the supported values.
func OneOf[T ~string](r *Report, path *field.Path, value T, supported ...T) {
	if !slices.Contains(supported, value) {
		r.Add(field.NotSupported(path, value, supported))
	}
}

// OneOfRequired does the same as OneOf, but reports an empty value as missing.
func OneOfRequired[T ~string](r *Report, path *field.Path, value T, supported ...T) {
	if value == "" {
		r.Required(path, "")
		return
	}
	OneOf(r, path, value, supported...)
}

// Label requires a DNS label.
func (r *Report) Label(path *field.Path, value string) {
	r.Each(path, value, naming.IsDNS1123Label(value))
}

// Subdomain requires a DNS subdomain.
func (r *Report) Subdomain(path *field.Path, value string) {
	r.Each(path, value, naming.IsDNS1123Subdomain(value))
}

// QualifiedName requires a qualified name, which is the form of label keys.
func (r *Report) QualifiedName(path *field.Path, value string) {
	r.Each(path, value, naming.IsQualifiedName(value))
}

// RequiredLabel does the same as Label, but reports an empty value as missing.
func (r *Report) RequiredLabel(path *field.Path, value string) {
	if value == "" {
		r.Required(path, "")
		return
	}
	r.Label(path, value)
}

// LabelName requires a valid label key.
func (r *Report) LabelName(path *field.Path, value string) {
	if len(naming.IsQualifiedName(value)) > 0 {
		r.Add(metav1validation.ValidateLabelName(value, path)...)
	}
}

// Labels reports invalid keys and values of labels.
func (r *Report) Labels(path *field.Path, labels map[string]string) {
	if !naming.LabelsOK(labels) {
		r.Add(metav1validation.ValidateLabels(labels, path)...)
	}
}

// Annotations reports invalid annotations and annotations that are too large in total.
func (r *Report) Annotations(path *field.Path, annotations map[string]string) {
	if !naming.AnnotationsOK(annotations) {
		r.Add(apivalidation.ValidateAnnotations(annotations, path)...)
	}
}

// Selector reports invalid requirements of a label selector.
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

// Immutable reports a changed field.
func (r *Report) Immutable(path *field.Path, value, old any) {
	r.Add(apivalidation.ValidateImmutableField(value, old, path)...)
}

// Keys returns the sorted keys of m, so that findings always have the same order.
func Keys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// SegmentName accepts any name that fits into a URL path segment.
func SegmentName(name string, prefix bool) []string {
	return path.ValidatePathSegmentName(name, prefix)
}

// LongName requires a DNS subdomain, whose length it counts in bytes. A prefix only has to fit into
// a URL path segment.
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

// Count is one of the counts in the status of a workload with replicas.
type Count struct {
	Name string
	N    int32
}

// Counts reports negative counts.
func (r *Report) Counts(path *field.Path, counts ...Count) {
	for _, c := range counts {
		r.NotNegative(path.Child(c.Name), int64(c.N))
	}
}

// Replicas reports counts that are above replicas, and more available than ready replicas. The
// last two counts are those of ready and available replicas.
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

// NotDecremented reports a counter that decreased or was removed. A new counter may have any
// value.
func (r *Report) NotDecremented(path *field.Path, is, was *int32) {
	switch {
	case was == nil:
	case is == nil:
		r.Invalid(path, int32(0), "cannot be decremented")
	case *is < *was:
		r.Invalid(path, *is, "cannot be decremented")
	}
}

// IntOrPercent requires a number that is not negative, or a percentage.
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

// IsZero reports whether value is 0 or 0%.
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

// EndpointIP reports an address that an endpoint cannot have, such as a loopback address.
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

// Expression reports the error of compiling a CEL expression.
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

// TemplateMeta validates the metadata of a template. It may have labels and annotations only.
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
