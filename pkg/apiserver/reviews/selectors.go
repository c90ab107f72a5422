// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package reviews

import (
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// checkEmpty rejects a review that has metadata other than managedFields and namespace.
func checkEmpty(meta *metav1.ObjectMeta, namespace, detail string) field.ErrorList {
	if equality.Semantic.DeepEqual(*meta, metav1.ObjectMeta{Namespace: namespace, ManagedFields: meta.ManagedFields}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), *meta, detail)}
}

// checkSelectors validates the field and label selectors of a reviewed request. It allows unknown
// operators, because clients may be newer than this server.
func checkSelectors(res *authorizationv1.ResourceAttributes, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := res.FieldSelector; s != nil {
		at := path.Child("fieldSelector")
		errs = append(errs, checkForm(s.RawSelector, len(s.Requirements), at)...)
		for i, r := range s.Requirements {
			errs = append(errs, validation.ValidateFieldSelectorRequirement(r,
				validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true},
				at.Child("requirements").Index(i))...)
		}
	}
	if s := res.LabelSelector; s != nil {
		at := path.Child("labelSelector")
		errs = append(errs, checkForm(s.RawSelector, len(s.Requirements), at)...)
		for i, r := range s.Requirements {
			errs = append(errs, validation.ValidateLabelSelectorRequirement(r,
				validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true},
				at.Child("requirements").Index(i))...)
		}
	}
	return errs
}

// checkForm checks that a selector in an access review is given either as text or as requirements.
func checkForm(raw string, requirements int, at *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(at.Child("rawSelector"), raw,
			"may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{
			field.Required(at.Child("requirements"),
				fmt.Sprintf("when %s is specified, requirements or rawSelector is required", at))}
	}
	return nil
}

// selectors copies the selectors of res to attrs. For a selector that cannot be parsed, it records
// the error, and the request counts as one without this selector.
func selectors(attrs *authorizer.AttributesRecord, res *authorizationv1.ResourceAttributes) {
	if s := res.FieldSelector; s != nil {
		if s.RawSelector != "" {
			parsed, err := fields.ParseSelector(s.RawSelector)
			if err == nil {
				attrs.FieldSelectorRequirements = parsed.Requirements()
			}
			attrs.FieldSelectorParsingErr = err
		}
		if len(s.Requirements) > 0 {
			attrs.FieldSelectorRequirements, attrs.FieldSelectorParsingErr = fieldRequirements(s.Requirements)
		}
	}
	if s := res.LabelSelector; s != nil {
		if s.RawSelector != "" {
			parsed, err := labels.Parse(s.RawSelector)
			if err == nil {
				attrs.LabelSelectorRequirements, _ = parsed.Requirements()
			}
			attrs.LabelSelectorParsingErr = err
		}
		if len(s.Requirements) > 0 {
			attrs.LabelSelectorRequirements, attrs.LabelSelectorParsingErr = labelRequirements(s.Requirements)
		}
	}
}

// fieldRequirements returns the requirements that field selectors support: a field equals one
// value, or does not equal it. For all others, it returns an error.
func fieldRequirements(in []metav1.FieldSelectorRequirement) (fields.Requirements, error) {
	var out fields.Requirements
	var errs []error
	for _, r := range in {
		op := selection.Operator("")
		switch r.Operator {
		case metav1.FieldSelectorOpIn:
			op = selection.Equals
		case metav1.FieldSelectorOpNotIn:
			op = selection.NotEquals
		}
		if op == "" || len(r.Values) != 1 {
			errs = append(errs, fmt.Errorf("field %s: operator %q with %d values", r.Key, r.Operator, len(r.Values)))
			continue
		}
		out = append(out, fields.Requirement{Field: r.Key, Operator: op, Value: r.Values[0]})
	}
	return out, errors.Join(errs...)
}

func labelRequirements(in []metav1.LabelSelectorRequirement) (labels.Requirements, error) {
	var out labels.Requirements
	var errs []error
	for _, r := range in {
		selector, err := metav1.LabelSelectorAsSelector(
			&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		more, _ := selector.Requirements()
		out = append(out, more...)
	}
	return out, errors.Join(errs...)
}

// evaluationError returns as text the error of the authorizer and the errors of the selectors.
func evaluationError(err error, attrs *authorizer.AttributesRecord) string {
	var words []string
	if err != nil {
		words = append(words, err.Error())
	}
	ignored := func(name string, err error, understood int) {
		switch {
		case err == nil:
		case understood > 0:
			words = append(words, "spec.resourceAttributes."+name+" partially ignored due to parse error")
		default:
			words = append(words, "spec.resourceAttributes."+name+" ignored due to parse error")
		}
	}
	ignored("fieldSelector", attrs.FieldSelectorParsingErr, len(attrs.FieldSelectorRequirements))
	ignored("labelSelector", attrs.LabelSelectorParsingErr, len(attrs.LabelSelectorRequirements))
	return strings.Join(words, "; ")
}
