// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserverinternal declares what API servers tell each other of the
// versions in which they store objects. Kubernetes has it off unless an operator
// asks for it, and so is it here.
//
// All of it is pure: no I/O, no state, no clock.
package apiserverinternal

import (
	"fmt"

	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
)

// Rows returns the rows of the group, in discovery order.
func Rows() []*resource.Row {
	return []*resource.Row{storageVersionRow()}
}

// storageVersionRow declares storageversions.
func storageVersionRow() *resource.Row {
	parts := strategy.Parts[apiserverinternalv1alpha1.StorageVersion, apiserverinternalv1alpha1.StorageVersionSpec, apiserverinternalv1alpha1.StorageVersionStatus](func(o *apiserverinternalv1alpha1.StorageVersion) (*apiserverinternalv1alpha1.StorageVersionSpec, *apiserverinternalv1alpha1.StorageVersionStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[apiserverinternalv1alpha1.StorageVersionList](resource.Kind[*apiserverinternalv1alpha1.StorageVersion]{
		Group: apiserverinternalv1alpha1.GroupName, Version: "v1alpha1", Resource: "storageversions", Kind: "StorageVersion",

		MetaOnUpdate:  resource.MetaRules{SkipUpdateChecks: true},
		PrepareCreate: parts.ClearStatus,
		PrepareUpdate: parts.KeepStatus,
		ResetFields:   []string{"status"},
		ValidateName:  validateName,
		Validate:      validateStorageVersion,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "CommonEncodingVersion", Type: "string", Description: apiserverinternalv1alpha1.StorageVersionStatus{}.SwaggerDoc()["commonEncodingVersion"]},
			{Name: "StorageVersions", Type: "string", Description: apiserverinternalv1alpha1.StorageVersionStatus{}.SwaggerDoc()["storageVersions"]},
			column.Age(),
		},
		Cells: cells,

		Subresources: []resource.Sub[*apiserverinternalv1alpha1.StorageVersion]{{
			Subresource:   strategy.View("status", "metadata", "spec").WithMetaRules(resource.MetaRules{SkipUpdateChecks: true}),
			PrepareUpdate: parts.KeepSpecAndMeta, ValidateUpdate: validateStatus,
		}},
	})
}

// shown is how many servers a cell names.
const shown = 3

func cells(v *apiserverinternalv1alpha1.StorageVersion, env resource.CellEnv) []any {
	var servers []string
	for _, s := range v.Status.StorageVersions {
		servers = append(servers, fmt.Sprintf("%s=%s", s.APIServerID, s.EncodingVersion))
	}
	return []any{v.Name, column.Deref(v.Status.CommonEncodingVersion, column.Unset), column.FewOrUnset(servers, shown), env.Age(v.CreationTimestamp)}
}
