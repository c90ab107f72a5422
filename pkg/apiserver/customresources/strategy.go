// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"keelson.dev/apiserver/resource"
)

// version has the registry's functions for one version of a CustomResourceDefinition.
type version struct {
	d         *definition
	name      string
	hasStatus bool
	scale     *scale
}

func object(obj resource.Object) *unstructured.Unstructured {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		// Cannot happen, because the functions of the kind table's row create and decode all its
		// objects.
		panic("a custom resource of another type")
	}
	return u
}

// defaults sets the defaults of fields that are not set.
func (v *version) defaults(obj resource.Object) {
	if m, err := v.d.machine(); err == nil { // validation returns the error of machine
		m.applyDefaults(object(obj))
	}
}

func (v *version) prepareCreate(_ context.Context, obj resource.Object) {
	if v.hasStatus {
		delete(object(obj).Object, "status")
	}
	obj.SetGeneration(1)
}

// prepareUpdate keeps the stored status if the version has a status subresource. It increments the
// generation if anything outside metadata changes.
func (v *version) prepareUpdate(_ context.Context, obj, old resource.Object) {
	u, was := object(obj).Object, object(old).Object
	if v.hasStatus {
		if status, ok := was["status"]; ok {
			u["status"] = status
		} else {
			delete(u, "status")
		}
	}
	if !equality.Semantic.DeepEqual(withoutMetadata(u), withoutMetadata(was)) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

func withoutMetadata(object map[string]any) map[string]any {
	out := maps.Clone(object)
	delete(out, "metadata")
	return out
}

// prepareStatus prepares an update of the status: of obj, only the status and the managed fields
// are kept.
func (v *version) prepareStatus(_ context.Context, obj, old resource.Object) {
	u := object(obj)
	status, ok := u.Object["status"]
	managed := u.GetManagedFields()
	u.Object = object(old).DeepCopy().Object
	u.SetManagedFields(managed)
	if ok {
		u.Object["status"] = status
	} else {
		delete(u.Object, "status")
	}
}

// reread changes a valid object to what a later read of the stored object would return. The two
// differ if an apply has added empty values to metadata: schemas allow these, and reading drops
// them.
func (v *version) reread(obj resource.Object) {
	u := object(obj)
	if !hollowMetadata(u.Object) {
		return
	}
	m, err := v.d.machine()
	if err != nil {
		return // validation returns the error of machine
	}
	// If the function read fails, keep obj. Later reads of the object return the error.
	if read := u.DeepCopy(); m.read(read) == nil {
		u.Object = read.Object
	}
}

// hollowMetadata reports whether the metadata of an object, or of an embedded object, contains
// empty values that decoding into a Go type would drop. It ignores managedFields, which consists of
// empty values.
func hollowMetadata(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for name, below := range v {
			if meta, ok := below.(map[string]any); ok && name == "metadata" && hollowMember(meta) || hollowMetadata(below) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hollowMetadata)
	}
	return false
}

func hollowMember(meta map[string]any) bool {
	for name, value := range meta {
		if name != "managedFields" && hollow(value) {
			return true
		}
	}
	return false
}

// hollow reports whether value is empty or contains an empty value. An empty string in a map, such
// as the value of a label, does not count.
func hollow(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case map[string]any:
		for _, below := range v {
			if below == nil {
				return true
			}
		}
		return len(v) == 0
	case []any:
		return len(v) == 0 || slices.ContainsFunc(v, hollow)
	}
	return false
}

// validator has the validators of the version's objects.
type validator struct {
	*versionSchema
	object, status validation.SchemaValidator
}

func (v *version) validator() (*validator, field.ErrorList) {
	m, err := v.d.machine()
	if err != nil {
		return nil, field.ErrorList{field.InternalError(nil, err)}
	}
	j := &validator{versionSchema: m.versions[v.name]}
	if j.object, j.status, err = j.validators(); err != nil {
		return nil, field.ErrorList{field.InternalError(nil, err)}
	}
	return j, nil
}

// ownKind reports whether obj has the version and kind that v serves. For an object of another
// kind, which the registry rejects later, only rules and list types are validated.
func (v *version) ownKind(obj resource.Object) bool {
	return obj.GetObjectKind().GroupVersionKind() == schema.GroupVersionKind{Group: v.d.group, Version: v.name,
		Kind: v.d.kind}
}

func (v *version) validate(ctx context.Context, obj resource.Object) field.ErrorList {
	j, errs := v.validator()
	if errs != nil {
		return errs
	}
	u := object(obj).Object
	if v.ownKind(obj) {
		errs = validation.ValidateCustomResource(nil, u, j.object)
		errs = append(errs, v.scale.validate(u, true)...)
	}
	errs = append(errs, objectmeta.Validate(ctx, nil, u, j.structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, j.structural, u)...)
	found := errs
	if obj.GetName() == "" { // the registry reports a missing name
		found = append(found[:len(found):len(found)], field.Required(field.NewPath("metadata", "name"), ""))
	}
	return append(errs, j.checkRules(ctx, u, nil, found)...)
}

// validateUpdate validates an update. It ignores errors in fields that the update does not change,
// as in Kubernetes.
func (v *version) validateUpdate(ctx context.Context, obj, old resource.Object) field.ErrorList {
	j, errs := v.validator()
	if errs != nil {
		return errs
	}
	u, was := object(obj).Object, object(old).Object
	pairs := common.NewCorrelatedObject(u, was, &model.Structural{Structural: j.structural})
	if v.ownKind(obj) {
		errs = validation.ValidateCustomResourceUpdate(nil, u, was, j.object, validation.WithRatcheting(pairs))
		errs = append(errs, v.scale.validate(u, true)...)
	}
	errs = append(errs, objectmeta.Validate(ctx, nil, u, j.structural, false)...)
	errs = append(errs, j.newListErrors(u, was)...)
	return append(errs, j.checkRules(ctx, u, was, errs, cel.WithRatcheting(pairs))...)
}

func (v *version) validateStatus(ctx context.Context, obj, old resource.Object) field.ErrorList {
	j, errs := v.validator()
	if errs != nil {
		return errs
	}
	u, was := object(obj).Object, object(old).Object
	pairs := common.NewCorrelatedObject(u, was, &model.Structural{Structural: j.structural})
	status, ok := u["status"]
	made := v.ownKind(obj)
	if ok && made {
		var ratchet []validation.ValidationOption
		if j.structural != nil {
			ratchet = append(ratchet, validation.WithRatcheting(pairs.Key("status")))
		}
		errs = validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, was["status"], j.status, ratchet...)
	}
	if made {
		errs = append(errs, v.scale.validate(u, false)...)
	}
	errs = append(errs, j.newListErrors(u, was)...)
	return append(errs, j.checkRules(ctx, u, was, errs, cel.WithRatcheting(pairs))...)
}

// newListErrors returns the errors of lists of type set or map in u. It returns none if such lists
// were already invalid in the stored object.
func (j *validator) newListErrors(u, was map[string]any) field.ErrorList {
	errs := listtype.ValidateListSetsAndMaps(nil, j.structural, u)
	if len(errs) > 0 && len(listtype.ValidateListSetsAndMaps(nil, j.structural, was)) > 0 {
		return nil
	}
	return errs
}

// checkRules evaluates x-kubernetes-validations. If the errors found so far include some after
// which values may have wrong types, it returns Kubernetes' error for rules that were not checked.
func (j *validator) checkRules(ctx context.Context, u, was map[string]any, found field.ErrorList,
	options ...cel.Option) field.ErrorList {
	rules := j.ruleValidator()
	if rules == nil {
		return nil
	}
	for _, err := range found {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong,
			field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return field.ErrorList{field.Invalid(nil, nil, "some validation rules were not checked because "+
				"the object was invalid; correct the existing errors to complete validation")}
		}
	}
	var old any // without an old object, old must be nil and not a nil map in an interface
	if was != nil {
		old = was
	}
	errs, _ := rules.Validate(ctx, nil, j.structural, u, old, celconfig.RuntimeCELCostBudget, options...)
	return errs
}
