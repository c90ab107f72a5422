// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storagemigration declares StorageVersionMigrations. A migration rewrites the stored
// objects of a resource in the current version and with the current encryption key. As in
// Kubernetes, the group is off by default.
//
// Its functions are pure: they do no I/O and keep no state.
package storagemigration

import (
	"context"
	"fmt"
	"strings"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/older"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
func Rows() []*resource.Row {
	return []*resource.Row{older.StoredAs("v1beta1", migrationRow())}
}

// migrationRow returns the row of the kind table for the resource storageversionmigrations.
func migrationRow() *resource.Row {
	parts := strategy.Parts[storagemigrationv1.StorageVersionMigration,
		storagemigrationv1.StorageVersionMigrationSpec,
		storagemigrationv1.StorageVersionMigrationStatus](
		func(o *storagemigrationv1.StorageVersionMigration) (
			*storagemigrationv1.StorageVersionMigrationSpec, *storagemigrationv1.StorageVersionMigrationStatus) {
			return &o.Spec, &o.Status
		})
	return resource.Of[storagemigrationv1.StorageVersionMigrationList](
		resource.Kind[*storagemigrationv1.StorageVersionMigration]{
			Group: storagemigrationv1.GroupName, Version: "v1", Resource: "storageversionmigrations",
			Kind:     "StorageVersionMigration",
			Feature:  "StorageVersionMigrator",
			Versions: []resource.Version{{Name: "v1", Introduced: 37}, v1beta1()},

			MetaOnUpdate:   resource.CheckNameAndFinalizers,
			PrepareCreate:  parts.ClearStatus,
			PrepareUpdate:  parts.KeepStatus,
			ResetFields:    []string{"status"},
			Validate:       validateMigration,
			ValidateUpdate: validateMigrationUpdate,

			Columns: []metav1.TableColumnDefinition{
				{Name: "Name", Type: "string", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]},
				{Name: "Resource", Type: "string", Description: "GroupResource to migrate"},
				{Name: "Status", Type: "string", Description: "Status of the migration"},
			},
			Cells: cells,

			Subresources: []resource.Sub[*storagemigrationv1.StorageVersionMigration]{
				{Subresource: strategy.View("status", "metadata", "spec"), PrepareUpdate: parts.KeepSpecAndMeta,
					ValidateUpdate: validateMigrationStatus},
			},
		})
}

func v1beta1() resource.Version {
	v := older.Version{
		Name: "v1beta1",
		Deprecated: "storagemigration.k8s.io/v1beta1 StorageVersionMigration is deprecated in v1.37+, unavailable in " +
			"v1.40+; use storagemigration.k8s.io/v1 StorageVersionMigration",
		Removed: 40,
		Stored:  &storagemigrationv1.StorageVersionMigration{}, Object: &storagemigrationv1beta1.StorageVersionMigration{},
		List: &storagemigrationv1beta1.StorageVersionMigrationList{}, Convert: convert,
	}
	return v.Row()
}

func convert(in, out resource.Object) error {
	if in, ok := in.(*storagemigrationv1.StorageVersionMigration); ok {
		if out, ok := out.(*storagemigrationv1beta1.StorageVersionMigration); ok {
			out.ObjectMeta, out.Spec, out.Status = in.ObjectMeta, storagemigrationv1beta1.StorageVersionMigrationSpec(in.Spec),
				storagemigrationv1beta1.StorageVersionMigrationStatus(in.Status)
			return nil
		}
	}
	if in, ok := in.(*storagemigrationv1beta1.StorageVersionMigration); ok {
		if out, ok := out.(*storagemigrationv1.StorageVersionMigration); ok {
			out.ObjectMeta, out.Spec, out.Status = in.ObjectMeta, storagemigrationv1.StorageVersionMigrationSpec(in.Spec),
				storagemigrationv1.StorageVersionMigrationStatus(in.Status)
			return nil
		}
	}
	return fmt.Errorf("cannot convert %T to %T", in, out)
}

// cells returns the cells of a migration. The status cell is the type of the last condition that is
// true.
func cells(m *storagemigrationv1.StorageVersionMigration, _ resource.CellEnv) []any {
	status := "Unknown"
	for _, c := range m.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			continue
		}
		switch t := storagemigrationv1.MigrationConditionType(c.Type); t {
		case storagemigrationv1.MigrationRunning, storagemigrationv1.MigrationSucceeded,
			storagemigrationv1.MigrationFailed:
			status = c.Type
		}
	}
	return []any{m.Name, m.Spec.Resource.String(), status}
}

func validateMigration(_ context.Context, m *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	var r report.Report
	path, what := field.NewPath("spec", "resource"), m.Spec.Resource
	if what.Resource == "" {
		r.Required(path.Child("resource"), "resource is required to be set")
	} else if reasons := validation.IsDNS1035Label(what.Resource); len(reasons) > 0 {
		r.Invalid(path.Child("resource"), what.Resource, strings.Join(reasons, ","))
	}
	if what.Group != "" {
		if reasons := validation.IsDNS1123Subdomain(what.Group); len(reasons) > 0 {
			r.Invalid(path.Child("group"), what.Group, strings.Join(reasons, ","))
		}
	}
	return r.Errors
}

func validateMigrationUpdate(ctx context.Context, m,
	old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	r := report.Report{Errors: validateMigration(ctx, m)}
	r.Immutable(field.NewPath("spec"), m.Spec, old.Spec)
	return r.Errors
}

// validateMigrationStatus requires that a migration does not both succeed and fail, does not undo
// its success or failure, and keeps the resource version from which it started.
func validateMigrationStatus(_ context.Context, m,
	old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	var r report.Report
	path := field.NewPath("status")
	version, was := m.Status.ResourceVersion, old.Status.ResourceVersion
	if version != "" {
		if _, err := resourceversion.CompareResourceVersion(version, version); err != nil {
			r.Invalid(path.Child("resourceVersion"), version, err.Error())
		}
	}
	conditions := path.Child("conditions")
	r.Add(metav1validation.ValidateConditions(m.Status.Conditions, conditions)...)
	if was != "" && was != version {
		r.Invalid(path.Child("resourceVersion"), version, "field is immutable")
	}
	if succeeded(m) && failed(m) {
		r.Invalid(conditions, m.Status.Conditions, "Both success and failed conditions cannot be true at the same time")
	}
	if succeeded(old) && !succeeded(m) {
		r.Invalid(conditions, m.Status.Conditions, "Success condition cannot be set to false once it is true")
	}
	if failed(old) && !failed(m) {
		r.Invalid(conditions, m.Status.Conditions, "Failed condition cannot be set to false once it is true")
	}
	return r.Errors
}

func succeeded(m *storagemigrationv1.StorageVersionMigration) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(storagemigrationv1.MigrationSucceeded))
}

func failed(m *storagemigrationv1.StorageVersionMigration) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(storagemigrationv1.MigrationFailed))
}
