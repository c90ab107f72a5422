// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiextensions

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

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
