// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report collects the errors that validation finds, in the order in which it finds them.
// Their reasons and messages are those of Kubernetes, with one difference: messages show invalid
// values as JSON with the API's field names. Kubernetes 1.37 shows some values with the names of Go
// fields.
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

// Report is a list of validation errors. The zero Report is empty and ready to use.
type Report struct{ Errors field.ErrorList }

// Add appends errors. It skips those that are nil.
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

// Forbidden reports a field that must not be set.
func (r *Report) Forbidden(path *field.Path, detail string) { r.Add(field.Forbidden(path, detail)) }

// Duplicate reports a value that occurs earlier in the list.
func (r *Report) Duplicate(path *field.Path, value any) { r.Add(field.Duplicate(path, value)) }

// NotFound reports a reference to an object that does not exist.
func (r *Report) NotFound(path *field.Path, value any) { r.Add(field.NotFound(path, value)) }

// TooLong reports a string that is longer than limit bytes.
func (r *Report) TooLong(path *field.Path, limit int) { r.Add(field.TooLong(path, "", limit)) }

// TooMany reports a list that has n items but must have at most limit items.
func (r *Report) TooMany(path *field.Path, n, limit int) { r.Add(field.TooMany(path, n, limit)) }

// Each reports the invalid value once for each reason.
func (r *Report) Each(path *field.Path, value any, reasons []string) {
	for _, reason := range reasons {
		r.Invalid(path, value, reason)
	}
}

// OneOf reports a value that is not one of the supported values.
func OneOf[T ~string](r *Report, path *field.Path, value T, supported ...T) {
	if !slices.Contains(supported, value) {
		r.Add(field.NotSupported(path, value, supported))
	}
}

// OneOfRequired does the same as OneOf, except that it reports an empty value as missing.
func OneOfRequired[T ~string](r *Report, path *field.Path, value T, supported ...T) {
	if value == "" {
		r.Required(path, "")
		return
	}
	OneOf(r, path, value, supported...)
}

// Label reports a value that is not a DNS label.
func (r *Report) Label(path *field.Path, value string) {
	r.Each(path, value, naming.IsDNS1123Label(value))
}

// Subdomain reports a value that is not a DNS subdomain.
func (r *Report) Subdomain(path *field.Path, value string) {
	r.Each(path, value, naming.IsDNS1123Subdomain(value))
}

// QualifiedName reports a value that is not a qualified name. The keys of labels are qualified
// names.
func (r *Report) QualifiedName(path *field.Path, value string) {
	r.Each(path, value, naming.IsQualifiedName(value))
}

// RequiredLabel does the same as Label, except that it reports an empty value as missing.
func (r *Report) RequiredLabel(path *field.Path, value string) {
	if value == "" {
		r.Required(path, "")
		return
	}
	r.Label(path, value)
}

// LabelName reports a value that cannot be the key of a label.
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

// Annotations reports annotations with invalid keys, and annotations that are too large in total.
func (r *Report) Annotations(path *field.Path, annotations map[string]string) {
	if !naming.AnnotationsOK(annotations) {
		r.Add(apivalidation.ValidateAnnotations(annotations, path)...)
	}
}

// Selector reports invalid requirements in a label selector.
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

// Quantity reports a negative quantity.
func (r *Report) Quantity(path *field.Path, value resource.Quantity) {
	if value.Sign() < 0 {
		r.Invalid(path, value.String(), apivalidation.IsNegativeErrorMsg)
	}
}

// Immutable reports a field whose value differs from the old value.
func (r *Report) Immutable(path *field.Path, value, old any) {
	r.Add(apivalidation.ValidateImmutableField(value, old, path)...)
}

// Keys returns the sorted keys of m. A rule that checks a map in this order always finds its errors
// in the same order.
func Keys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// SegmentName returns the reasons why name does not fit into a segment of a URL path. It has the
// form of a function that checks the names of a kind.
func SegmentName(name string, prefix bool) []string {
	return path.ValidatePathSegmentName(name, prefix)
}

// LongName returns the reasons why name is not a DNS subdomain. It counts the length in bytes. A
// name that is a prefix only has to fit into a segment of a URL path.
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

// Count is one of the counters in the status of a workload with replicas. Name is the name of its
// field.
type Count struct {
	Name string
	N    int32
}

// Counts reports negative counters.
func (r *Report) Counts(path *field.Path, counts ...Count) {
	for _, c := range counts {
		r.NotNegative(path.Child(c.Name), int64(c.N))
	}
}

// Replicas reports counters that are greater than replicas. The last two counters must be those of
// the ready and of the available replicas; it is an error if more replicas are available than
// ready.
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

// NotDecremented reports a counter that has decreased or is no longer set. If it was not set
// before, it may have any value.
func (r *Report) NotDecremented(path *field.Path, is, was *int32) {
	switch {
	case was == nil:
	case is == nil:
		r.Invalid(path, int32(0), "cannot be decremented")
	case *is < *was:
		r.Invalid(path, *is, "cannot be decremented")
	}
}

// IntOrPercent reports a value that is neither a non-negative number nor a percentage.
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

// EndpointIP reports an IP address that an endpoint cannot have, such as a loopback address.
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

// Expression reports err, which the compiler of CEL expressions has returned for expression.
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

// TemplateMeta reports errors in the metadata of a template, which may only have labels and
// annotations.
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
