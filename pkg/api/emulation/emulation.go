// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package emulation has the differences between the rules of the kind table's rows in the present
// release of Kubernetes and in an earlier one.
//
// Apply gives rows the rules of the earlier release. A server with these rows drops fields that the
// earlier release does not have or has disabled, unless a stored object already uses them. It
// rejects values that the earlier release rejects, and it stores objects in the versions in which
// the earlier release stores them. So a server of the earlier release can take over its data. Check
// finds the stored objects that a server of the earlier release would change or reject.
//
// All differences are in this package, so that the rows themselves have only the rules of the
// present release. The package does not decide which versions are served; package api does.
package emulation

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/older"
	"keelson.dev/keelson/pkg/release"
)

// Previous is the earlier release that the package can emulate.
const Previous release.Emulated = 36

// Apply changes the rules of rows to those of an emulated release.
func Apply(rows []*resource.Row, emulated release.Emulated) {
	if !emulated.Before(uint(Previous) + 1) {
		return
	}
	for _, row := range rows {
		switch row.New().(type) {
		case *admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicyBinding:
			older.StoredAs("v1beta1", row) // the release before the emulated one has no v1
		}
		for _, r := range rulesOf(row) {
			if r.rejection != nil {
				r.reject(row)
				continue
			}
			if r.defaulted {
				r.keepUnset(row)
			}
			resource.DropOnWrite(row, r.visit)
		}
	}
}

// Check returns a function that lists what the release Previous does to a stored object of row: the
// fields that it drops, and the values that it rejects in new objects. A field with the value that
// the present release sets by default is not listed. Check returns nil if the releases do not
// differ in objects of row. The row must have the rules of the present release.
func Check(row *resource.Row) func(resource.Object) []string {
	rules := rulesOf(row)
	if len(rules) == 0 {
		return nil
	}
	return func(obj resource.Object) (found []string) {
		for _, r := range rules {
			switch {
			case !r.uses(obj):
			case r.rejection != nil:
				found = append(found, "rejects "+r.name+" in new objects")
			case !r.defaulted || !r.byDefault(row, obj):
				found = append(found, "drops "+r.name)
			}
		}
		return found
	}
}

// rule is a field that the earlier release drops, or a value that it rejects.
type rule struct {
	// name is the name of the field for users, or of the field and the value.
	name string
	// uses reports whether an object has the field or value.
	uses func(resource.Object) bool
	// clear removes the field from an object.
	clear func(resource.Object)
	// defaulted reports whether the present release sets a default for the field.
	defaulted bool
	// rejection is the error for new objects that have the value which the earlier release rejects.
	// It is nil if that release drops the field.
	rejection *field.Error
}

// byDefault reports whether obj has the field of the rule only because the present release sets it
// by default.
func (r *rule) byDefault(row *resource.Row, obj resource.Object) bool {
	without, ok := obj.DeepCopyObject().(resource.Object)
	if !ok {
		return false
	}
	r.clear(without)
	row.Default(without)
	return equality.Semantic.DeepEqual(without, obj)
}

// visit reports whether an object has the field, and clears the field if drop is true.
func (r *rule) visit(obj resource.Object, drop bool) bool {
	used := r.uses(obj)
	if drop {
		r.clear(obj)
	}
	return used
}

// keepUnset makes a row never set the default of the field.
func (r *rule) keepUnset(row *resource.Row) {
	fill := row.Default
	row.Default = func(obj resource.Object) {
		used := r.uses(obj)
		fill(obj)
		if !used {
			r.clear(obj)
		}
	}
}

// reject makes a row reject objects with the value. An update accepts the value if the stored object has
// it.
func (r *rule) reject(row *resource.Row) {
	create, update := row.Validate, row.ValidateUpdate
	row.Validate = func(ctx context.Context, obj resource.Object) field.ErrorList {
		errs := create(ctx, obj)
		if r.uses(obj) {
			return append(field.ErrorList{r.rejection}, errs...)
		}
		return errs
	}
	row.ValidateUpdate = func(ctx context.Context, obj, old resource.Object) field.ErrorList {
		errs := update(ctx, obj, old)
		if r.uses(obj) && !r.uses(old) {
			return append(field.ErrorList{r.rejection}, errs...)
		}
		return errs
	}
}
