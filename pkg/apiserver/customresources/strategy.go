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

// version is what the objects of one version of a definition mean.
type version struct {
	d         *definition
	name      string
	hasStatus bool
	scale     *scale
}

func object(obj resource.Object) *unstructured.Unstructured {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		panic("a custom resource of another type") // rows make and decode their own objects
	}
	return u
}

// defaults fills unset fields.
func (v *version) defaults(obj resource.Object) {
	if m, err := v.d.machine(); err == nil { // an error is told by who validates
		m.applyDefaults(object(obj))
	}
}

func (v *version) prepareCreate(_ context.Context, obj resource.Object) {
	if v.hasStatus {
		delete(object(obj).Object, "status")
	}
	obj.SetGeneration(1)
}

// prepareUpdate keeps the status where it has an endpoint of its own. Whatever
// changes outside of metadata counts.
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

// prepareStatus keeps all but the status, and who manages it.
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

// reread leaves of a valid object what reading its stored form would leave: an apply
// brings in metadata that says nothing, which schemas let pass.
func (v *version) reread(obj resource.Object) {
	u := object(obj)
	if !hollowMetadata(u.Object) {
		return
	}
	m, err := v.d.machine()
	if err != nil {
		return // told by who validates
	}
	// What cannot be read is left for who reads it to tell of.
	if read := u.DeepCopy(); m.read(read) == nil {
		u.Object = read.Object
	}
}

// hollowMetadata tells whether the metadata of an object, or of one that is embedded in it, has
// something that types do not keep. managedFields are not looked at: their sets are made of nothing else.
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

// hollow tells whether value says nothing, or something in it has no value at all: an
// empty text is kept of a label.
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

// judge is who validates objects of the version.
type judge struct {
	*versionSchema
	object, status validation.SchemaValidator
}

func (v *version) judge() (*judge, field.ErrorList) {
	m, err := v.d.machine()
	if err != nil {
		return nil, field.ErrorList{field.InternalError(nil, err)}
	}
	j := &judge{versionSchema: m.versions[v.name]}
	if j.object, j.status, err = j.validators(); err != nil {
		return nil, field.ErrorList{field.InternalError(nil, err)}
	}
	return j, nil
}

// made tells whether obj is of this version and kind. One that is not, which the registry
// tells of, is held against the rules and list types of the schema all the same, though not
// against its types.
func (v *version) made(obj resource.Object) bool {
	return obj.GetObjectKind().GroupVersionKind() == schema.GroupVersionKind{Group: v.d.group, Version: v.name, Kind: v.d.kind}
}

func (v *version) validate(ctx context.Context, obj resource.Object) field.ErrorList {
	j, errs := v.judge()
	if errs != nil {
		return errs
	}
	u := object(obj).Object
	if v.made(obj) {
		errs = validation.ValidateCustomResource(nil, u, j.object)
		errs = append(errs, v.scale.validate(u, true)...)
	}
	errs = append(errs, objectmeta.Validate(nil, u, j.structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, j.structural, u)...)
	found := errs
	if obj.GetName() == "" { // which the registry finds
		found = append(found[:len(found):len(found)], field.Required(field.NewPath("metadata", "name"), ""))
	}
	return append(errs, j.checkRules(ctx, u, nil, found)...)
}

// validateUpdate lets pass what was wrong before and did not change.
func (v *version) validateUpdate(ctx context.Context, obj, old resource.Object) field.ErrorList {
	j, errs := v.judge()
	if errs != nil {
		return errs
	}
	u, was := object(obj).Object, object(old).Object
	pairs := common.NewCorrelatedObject(u, was, &model.Structural{Structural: j.structural})
	if v.made(obj) {
		errs = validation.ValidateCustomResourceUpdate(nil, u, was, j.object, validation.WithRatcheting(pairs))
		errs = append(errs, v.scale.validate(u, true)...)
	}
	errs = append(errs, objectmeta.Validate(nil, u, j.structural, false)...)
	errs = append(errs, j.newListErrors(u, was)...)
	return append(errs, j.checkRules(ctx, u, was, errs, cel.WithRatcheting(pairs))...)
}

func (v *version) validateStatus(ctx context.Context, obj, old resource.Object) field.ErrorList {
	j, errs := v.judge()
	if errs != nil {
		return errs
	}
	u, was := object(obj).Object, object(old).Object
	pairs := common.NewCorrelatedObject(u, was, &model.Structural{Structural: j.structural})
	status, ok := u["status"]
	made := v.made(obj)
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

// newListErrors finds lists that are no sets or maps any more.
func (j *judge) newListErrors(u, was map[string]any) field.ErrorList {
	errs := listtype.ValidateListSetsAndMaps(nil, j.structural, u)
	if len(errs) > 0 && len(listtype.ValidateListSetsAndMaps(nil, j.structural, was)) > 0 {
		return nil
	}
	return errs
}

// checkRules evaluates x-kubernetes-validations, unless u is so wrong that the
// rules could not be sure of its types.
func (j *judge) checkRules(ctx context.Context, u, was map[string]any, found field.ErrorList, options ...cel.Option) field.ErrorList {
	rules := j.ruleValidator()
	if rules == nil {
		return nil
	}
	for _, err := range found {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return field.ErrorList{field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
		}
	}
	var old any // nil, not a nil map, when there is none
	if was != nil {
		old = was
	}
	errs, _ := rules.Validate(ctx, nil, j.structural, u, old, celconfig.RuntimeCELCostBudget, options...)
	return errs
}
