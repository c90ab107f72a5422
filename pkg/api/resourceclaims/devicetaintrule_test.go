// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/resourceclaims"
	"keelson.dev/keelson/pkg/api/rowtest"
)

func TestDeviceTaintRules(t *testing.T) {
	row := rowtest.Row(t, resourceclaims.Rows(nil), "devicetaintrules")
	valid := `{metadata: {name: r}, spec: {deviceSelector: {driver: d.example.com, pool: a/b, device: x},
		taint: {key: k, effect: NoExecute, timeAdded: "2020-01-01T00:00:00Z"}}}`
	cases := []rowtest.Case{
		{"valid", ``, ""},
		{"without a selector", `spec: {deviceSelector: null}`, ""},
		{"effect None", `spec: {taint: {effect: None}}`, ""},
		{"invalid selector", `spec: {deviceSelector: {driver: "a b", pool: "", device: "a.b"}}`,
			"spec.deviceSelector.driver: Invalid value, spec.deviceSelector.pool: Required value, " +
				"spec.deviceSelector.device: Invalid value"},
		{"no key", `spec: {taint: {key: ""}}`, "spec.taint.key: Invalid value"},
		{"invalid value", `spec: {taint: {value: "a b"}}`, "spec.taint.value: Invalid value"},
		{"no effect", `spec: {taint: {effect: ""}}`, "spec.taint.effect: Required value"},
		{"unknown effect", `spec: {taint: {effect: X}}`, "spec.taint.effect: Unsupported value"},
	}
	rowtest.Creates(t, row, valid, cases)
	rowtest.Updates(t, row, "", valid, cases)
	condition := `{type: T%d, status: "True", reason: R, message: "", lastTransitionTime: "2020-01-01T00:00:00Z"}`
	var conditions []string
	for i := range resourcev1.DeviceTaintRuleStatusMaxConditions + 1 {
		conditions = append(conditions, fmt.Sprintf(condition, i))
	}
	rowtest.Updates(t, row, "status", valid, []rowtest.Case{
		{"condition", `status: {conditions: [` + conditions[0] + `]}`, ""},
		{"too many", `status: {conditions: [` + strings.Join(conditions, ", ") + `]}`, "status.conditions: Too many"},
	})
}

// TestTimeOfTaintRules checks that the time of a rule's taint is that at which its effect began, unless
// the client chooses another.
func TestTimeOfTaintRules(t *testing.T) {
	row := rowtest.Row(t, resourceclaims.Rows(nil), "devicetaintrules")
	early, late := time.Unix(1000, 0).UTC(), time.Unix(2000, 0).UTC()
	for name, tc := range map[string]struct {
		change string
		want   time.Time
	}{
		"another value":            {`{"value": "v"}`, early},
		"another effect":           {`{"effect": "NoSchedule"}`, late},
		"another effect, and time": {`{"effect": "NoSchedule", "timeAdded": "1970-01-01T00:00:05Z"}`, time.Unix(5, 0).UTC()},
		"no time":                  {`{"timeAdded": null}`, late},
	} {
		t.Run(name, func(t *testing.T) {
			old := rowtest.Decode(t, row, "r", `{"spec": {"taint": {"key": "k", "effect": "NoExecute"}}}`)
			row.PrepareCreate(resource.WithTime(t.Context(), early), old)
			rule := old.DeepCopyObject().(*resourcev1.DeviceTaintRule)
			if err := json.Unmarshal([]byte(tc.change), &rule.Spec.Taint); err != nil {
				t.Fatal(err)
			}
			row.PrepareUpdate(resource.WithTime(t.Context(), late), rule, old)
			if got := rule.Spec.Taint.TimeAdded; got == nil || !got.Time.Equal(tc.want) {
				t.Errorf("time %v, want %v", got, tc.want)
			}
		})
	}
}
