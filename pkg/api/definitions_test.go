// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/openapi"
	"keelson.dev/keelson/pkg/api"
	definitions "keelson.dev/keelson/pkg/api/openapi"
)

// TestDefinitions checks that the OpenAPI definitions have all kinds in all of their versions, also in
// those that are off by default. Versions that only an earlier release serves have none.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	const release = 37
	for _, version := range []int{2, 3} {
		doc, err := definitions.Source{}.Definitions(version)
		if err != nil {
			t.Fatal(err)
		}
		defs, err := openapi.Parse(doc, version)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range api.Rows(api.Deps{}) {
			for _, v := range row.Versions {
				for _, kind := range []string{row.Kind, row.ListKind} {
					gvk := schema.GroupVersionKind{Group: row.Group, Version: v.Name, Kind: kind}
					if kind == row.ListKind && row.Ephemeral || v.Removed != 0 && v.Removed <= release {
						continue
					}
					if defs.Name(gvk) == "" {
						t.Errorf("OpenAPI v%d has no %v", version, gvk)
					}
				}
			}
		}
	}
}
