// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiextensions

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestValuesOfSchemasHaveOneSpelling(t *testing.T) {
	const written = `{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{
		"a":{"type":"object","default":{"z": 1.0,"b":{"y":1e2,"x":"\u0041"}}},
		"l":{"type":"array","items":{"enum":[{"d":1,"c":2}]}}}}}}]}}`
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal([]byte(written), crd); err != nil {
		t.Fatal(err)
	}
	crd.Kind = "CustomResourceDefinition"
	completeCustomResourceDefinition(crd)
	props := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
	got := []string{string(props["a"].Default.Raw), string(props["l"].Items.Schema.Enum[0].Raw), crd.Kind}
	if diff := cmp.Diff([]string{`{"b":{"x":"A","y":100},"z":1}`, `{"c":2,"d":1}`, "CustomResourceDefinition"},
		got); diff != "" {
		t.Error(diff)
	}
}

func TestUnknownFormatsAreToldOnce(t *testing.T) {
	with := func(formats ...string) *apiextensionsv1.CustomResourceDefinition {
		crd := sample(t)
		props := make(map[string]apiextensionsv1.JSONSchemaProps)
		for _, f := range formats {
			props[f] = apiextensionsv1.JSONSchemaProps{Type: "string", Format: f}
		}
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = props
		return crd
	}
	want := []string{`unrecognized format "cron"`, `unrecognized format "isbn99"`}
	if diff := cmp.Diff(want, warnOfFormats(t.Context(), with("date-time", "isbn99", "cron"), nil)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[:1], warnOfFormats(t.Context(), with("cron", "isbn99"), with("isbn99"))); diff != "" {
		t.Error(diff)
	}
}
