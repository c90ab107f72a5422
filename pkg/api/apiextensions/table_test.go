// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiextensions

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

// TestDefinitionCells checks that the table shows the served versions in the order of their names,
// and marks the one that is stored.
func TestDefinitionCells(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: "as.b.c", CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "b.c", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "A", ShortNames: []string{"x", "y"}},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: "v2", Served: true}, {Name: "v1", Served: true, Storage: true}, {Name: "v0"},
			},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
			},
		},
	}
	want := []any{"as.b.c", "Namespaced", "v1(storage),v2", "2026-01-02T03:04:05Z", "b.c", "A", "x,y", true}
	if diff := cmp.Diff(want, definitionCells(crd, resource.CellEnv{})); diff != "" {
		t.Error(diff)
	}
}
