// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi_test

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/openapi"
	"keelson.dev/apiserver/resource"
)

// TestDocumentsLeaveLibraryAlone makes documents out of descriptions that all
// of the process shares: a change in them would be one under others' reads.
func TestDocumentsLeaveLibraryAlone(t *testing.T) {
	row := resource.Kind[corev1.ConfigMap, corev1.ConfigMapList]{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}.Row()
	defs, err := openapi.Parse(nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(metav1.ListOptions{}.SwaggerDoc())
	if _, err := openapi.NewPart(defs, "", "v1", row, false); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(before, metav1.ListOptions{}.SwaggerDoc()) {
		t.Error("the descriptions of ListOptions have changed")
	}
}
