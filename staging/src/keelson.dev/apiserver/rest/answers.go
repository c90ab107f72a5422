// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	autoscaling "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

func (builtIn) optionalHash() bool        { return true }
func (customResource) optionalHash() bool { return false }

// scaleType returns the name of Kubernetes' internal type for built-in kinds. Kubernetes' server of
// custom resources has no such type.
func (builtIn) scaleType() string        { return resource.InternalName(scaleKind()) }
func (customResource) scaleType() string { return "v1.Scale" }

func (customResource) scaleColumns() []metav1.TableColumnDefinition {
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: docs["name"]},
		{Name: "Desired", Type: "integer", Description: "Number of desired replicas"},
		{Name: "Available", Type: "integer", Description: "Number of actual replicas"},
		{Name: "Age", Type: "date", Description: docs["creationTimestamp"]},
	}
}

// scaleColumns returns the columns for built-in kinds. Types and descriptions differ from the
// columns for custom resources.
func (builtIn) scaleColumns() []metav1.TableColumnDefinition {
	columns := customResource{}.scaleColumns()
	columns[0].Format, columns[3].Type = "", "string"
	columns[1].Description = autoscaling.ScaleSpec{}.SwaggerDoc()["replicas"]
	columns[2].Description = autoscaling.ScaleStatus{}.SwaggerDoc()["replicas"]
	return columns
}

func (builtIn) unreadScale(err error) error { return err }

// unreadScale replaces the decoder's error for a bad body. Kubernetes' server of custom resources
// has no Scale in its scheme, and always returns this error.
func (customResource) unreadScale(err error) error {
	if apierrors.IsBadRequest(err) {
		return apierrors.NewBadRequest(`no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"`)
	}
	return err
}

func (builtIn) checkScale(name string, scale *autoscaling.Scale) error {
	return checkScale(name, scale)
}

// checkScale does nothing for custom resources: the schema of the resource validates replicas.
func (customResource) checkScale(string, *autoscaling.Scale) error { return nil }
