// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storagemigration

import (
	"context"
	"strings"

	storagemigrationv1beta1 "k8s.io/api/storagemigration/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
)

func validateMigration(_ context.Context, m *storagemigrationv1beta1.StorageVersionMigration) field.ErrorList {
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

func validateMigrationUpdate(ctx context.Context, m, old *storagemigrationv1beta1.StorageVersionMigration) field.ErrorList {
	r := report.Report{Errors: validateMigration(ctx, m)}
	r.Immutable(field.NewPath("spec"), m.Spec, old.Spec)
	return r.Errors
}

// validateMigrationStatus: a migration ends one way, once, and the version that
// it goes by stays.
func validateMigrationStatus(_ context.Context, m, old *storagemigrationv1beta1.StorageVersionMigration) field.ErrorList {
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

func succeeded(m *storagemigrationv1beta1.StorageVersionMigration) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(storagemigrationv1beta1.MigrationSucceeded))
}

func failed(m *storagemigrationv1beta1.StorageVersionMigration) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(storagemigrationv1beta1.MigrationFailed))
}
