// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storagemigration_test

import (
	"testing"

	"keelson.dev/keelson/pkg/api/rowtest"
	"keelson.dev/keelson/pkg/api/storagemigration"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		object string
		want   []string
	}{
		"of the core group": {`{"spec":{"resource":{"resource":"pods"}}}`, nil},
		"of a group":        {`{"spec":{"resource":{"group":"a.b","resource":"cs"}}}`, nil},
		"empty name": {`{"spec":{"resource":{"group":"a.b"}}}`,
			[]string{"spec.resource.resource: Required value: resource is required to be set"}},
		"of a bad group": {`{"spec":{"resource":{"group":"a_b","resource":"cs"}}}`, []string{
			`spec.resource.group: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of ` +
				`lower case alphanumeric characters, '-' or '.', and must start and end with an ` +
				`alphanumeric character (e.g. 'example.com', regex used for validation is ` +
				`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := rowtest.Row(t, storagemigration.Rows(), "storageversionmigrations")
			rowtest.Check(t, row.Validate(t.Context(), rowtest.Decode(t, row, "", tc.object)), tc.want)
		})
	}
}

// TestStatus checks that a migration cannot both succeed and fail, and keeps the resource version
// from which it started.
func TestStatus(t *testing.T) {
	t.Parallel()
	const (
		spec      = `"spec":{"resource":{"resource":"pods"}}`
		succeeded = `{"type":"Succeeded","status":"True","reason":"A",` +
			`"lastTransitionTime":"2026-01-01T00:00:00Z","message":""}`
		failed = `{"type":"Failed","status":"True","reason":"A","lastTransitionTime":"2026-01-01T00:00:00Z","message":""}`
	)
	for name, tc := range map[string]struct {
		old, status string
		problems    int
	}{
		"resource version is set":               {`{}`, `{"resourceVersion":"7"}`, 0},
		"resource version that is not a number": {`{}`, `{"resourceVersion":"x"}`, 1},
		"another version":                       {`{"resourceVersion":"7"}`, `{"resourceVersion":"8"}`, 1},
		"resource version is removed":           {`{"resourceVersion":"7"}`, `{}`, 1},
		"succeeds": {`{"resourceVersion":"7"}`,
			`{"resourceVersion":"7","conditions":[` + succeeded + `]}`, 0},
		"succeeded and failed":  {`{}`, `{"conditions":[` + succeeded + `,` + failed + `]}`, 1},
		"stops being succeeded": {`{"conditions":[` + succeeded + `]}`, `{}`, 1},
		"stops being failed":    {`{"conditions":[` + failed + `]}`, `{}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := rowtest.Row(t, storagemigration.Rows(), "storageversionmigrations")
			old := rowtest.Decode(t, row, "", `{`+spec+`,"status":`+tc.old+`}`)
			obj := rowtest.Decode(t, row, "", `{`+spec+`,"status":`+tc.status+`}`)
			if errs := row.Subresources[0].ValidateUpdate(t.Context(), obj, old); len(errs) != tc.problems {
				t.Errorf("%v, want %d", errs, tc.problems)
			}
		})
	}
}
