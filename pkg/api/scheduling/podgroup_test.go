// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/rowtest"
	"keelson.dev/keelson/pkg/api/scheduling"
)

const podGroup = `{metadata: {name: g, namespace: ns}, spec: {workloadRef: {workloadName: w, templateName: t},
	schedulingPolicy: {gang: {minCount: 2}}, disruptionMode: {all: {}}, priorityClassName: high, priority: 5}}`

// TestPodGroup checks which pod groups and changes of pod groups are valid.
func TestPodGroup(t *testing.T) {
	row := rowtest.Row(t, scheduling.Rows(), "podgroups")
	rowtest.Creates(t, row, podGroup, []rowtest.Case{
		{"valid", ``, ""},
		{"without a workload", `spec: {workloadRef: null}`, ""},
		{"empty reference", `spec: {workloadRef: {workloadName: "", templateName: ""}}`,
			"spec.workloadRef.workloadName: Required value, spec.workloadRef.templateName: Required value"},
		{"invalid reference", `spec: {workloadRef: {workloadName: W, templateName: a.b}}`,
			"spec.workloadRef.workloadName: Invalid value, spec.workloadRef.templateName: Invalid value"},
		{"no policy", `spec: {schedulingPolicy: {gang: null}}`, "spec.schedulingPolicy: Invalid value"},
		{"two policies", `spec: {schedulingPolicy: {basic: {}}}`, "spec.schedulingPolicy: Invalid value"},
		{"no count", `spec: {schedulingPolicy: {gang: {minCount: 0}}}`,
			"spec.schedulingPolicy.gang.minCount: Required value"},
		{"negative count", `spec: {schedulingPolicy: {gang: {minCount: -1}}}`,
			"spec.schedulingPolicy.gang.minCount: Invalid value"},
		{"disruption by default", `spec: {disruptionMode: null}`, ""},
		{"no disruption", `spec: {disruptionMode: {all: null}}`, "spec.disruptionMode: Invalid value"},
		{"two disruptions", `spec: {disruptionMode: {single: {}}}`, "spec.disruptionMode: Invalid value"},
		{"class", `spec: {priorityClassName: A}`, "spec.priorityClassName: Invalid value"},
		{"highest priority", `spec: {priority: 1000000000}`, ""},
		{"system priority", `spec: {priority: 1000000001}`, "spec.priority: Invalid value"},
		{"fields of other features", `spec: {parentCompositePodGroupName: A, preemptionPolicy: x,
			schedulingConstraints: {topology: [{key: ""}]}, resourceClaims: [{name: ""}]}`, ""},
	})
	rowtest.Updates(t, row, "", podGroup, []rowtest.Case{
		{"nothing", ``, ""},
		{"count", `spec: {schedulingPolicy: {gang: {minCount: 3}}}`, ""},
		{"no count", `spec: {schedulingPolicy: {gang: {minCount: 0}}}`,
			"spec.schedulingPolicy.gang.minCount: Required value"},
		{"policy", `spec: {schedulingPolicy: {gang: null, basic: {}}}`,
			"spec.schedulingPolicy.basic: Invalid value, spec.schedulingPolicy.gang: Invalid value"},
		{"no policy", `spec: {schedulingPolicy: {gang: null}}`,
			"spec.schedulingPolicy: Invalid value, spec.schedulingPolicy.gang: Invalid value"},
		{"fixed fields", `spec: {workloadRef: null, disruptionMode: null, priorityClassName: low, priority: 6}`,
			"spec.workloadRef: Invalid value, spec.disruptionMode: Invalid value, " +
				"spec.priorityClassName: Invalid value, spec.priority: Invalid value"},
		{"status", `status: {conditions: [{type: ""}]}`, ""},
	})
	rowtest.Updates(t, row, "status", podGroup, []rowtest.Case{
		{"condition", `status: {conditions: [{type: PodGroupInitiallyScheduled, status: "True", reason: R,
			lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, ""},
		{"invalid condition", `status: {conditions: [{type: "", status: "True", reason: R,
			lastTransitionTime: "2026-01-01T00:00:00Z"}]}`, "status.conditions[0].type: Required value"},
		{"spec is not changed", `spec: {priority: 6}`, ""},
		{"claims of another feature", `status: {resourceClaimStatuses: [{name: c}]}`, ""},
	})
}

// TestPodGroupMessages checks the messages of errors, which must be those of Kubernetes.
func TestPodGroupMessages(t *testing.T) {
	row := rowtest.Row(t, scheduling.Rows(), "podgroups")
	obj := rowtest.Decode(t, row, "g", `{"spec": {"workloadRef": {"workloadName": "w", "templateName": "T"},
		"schedulingPolicy": {"basic": {}, "gang": {"minCount": -1}}, "disruptionMode": {}, "priority": 1000000001}}`)
	rowtest.Check(t, row.Validate(t.Context(), obj), []string{
		"spec.workloadRef.templateName: Invalid value: \"T\": a lowercase RFC 1123 label must consist of lower case " +
			"alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  " +
			"or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
		"spec.schedulingPolicy: Invalid value: \"{basic, gang}\": must specify exactly one of: `basic`, `gang`",
		"spec.schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1",
		"spec.disruptionMode: Invalid value: \"\": must specify one of: `single`, `all`",
		"spec.priority: Invalid value: 1000000001: must be less than or equal to 1000000000",
	})
	stored := rowtest.Decode(t, row, "g", `{"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}`)
	changed := rowtest.Decode(t, row, "g", `{"spec": {"schedulingPolicy": {"basic": {}}, "priority": 1}}`)
	rowtest.Check(t, row.ValidateUpdate(t.Context(), changed, stored), []string{
		"spec.schedulingPolicy.basic: Invalid value: null: field is immutable",
		"spec.schedulingPolicy.gang: Invalid value: null: field cannot be cleared once set",
		"spec.priority: Invalid value: null: field is immutable",
	})
	changed, stored = stored, changed
	rowtest.Check(t, row.ValidateUpdate(t.Context(), changed, stored), []string{
		"spec.schedulingPolicy.basic: Invalid value: null: field is immutable",
		"spec.schedulingPolicy.gang: Invalid value: null: field cannot be set once created",
		"spec.priority: Invalid value: null: field is immutable",
	})
}

// TestPodGroupPrepared checks the defaults of pod groups, and the fields that writes do not change.
func TestPodGroupPrepared(t *testing.T) {
	row := rowtest.Row(t, scheduling.Rows(), "podgroups")
	const all = `{"spec": {"schedulingPolicy": {"basic": {}}, "parentCompositePodGroupName": "c",
		"preemptionPolicy": "Never", "schedulingConstraints": {"topology": [{"key": "k"}]},
		"resourceClaims": [{"name": "c"}]}, "status": {"resourceClaimStatuses": [{"name": "c"}],
		"conditions": [{"type": "A"}]}}`
	created := rowtest.Decode(t, row, "g", all)
	row.PrepareCreate(t.Context(), created)
	plain := rowtest.Decode(t, row, "g",
		`{"spec": {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"single": {}}}}`)
	if !reflect.DeepEqual(created, plain) {
		t.Errorf("created %+v, want %+v", created, plain)
	}
	stored, updated := rowtest.Decode(t, row, "g", all), rowtest.Decode(t, row, "g", all)
	row.PrepareUpdate(t.Context(), updated, stored)
	row.Subresource("status").PrepareUpdate(t.Context(), updated, stored)
	if !reflect.DeepEqual(updated, stored) {
		t.Errorf("updated %+v, want the fields of the stored object %+v", updated, stored)
	}
	updated = rowtest.Decode(t, row, "g", all)
	row.Subresource("status").PrepareUpdate(t.Context(), updated, plain)
	if g, ok := updated.(*schedulingv1beta1.PodGroup); !ok || len(g.Status.ResourceClaimStatuses) > 0 ||
		len(g.Status.Conditions) != 1 {
		t.Errorf("status %+v, want only the condition", updated)
	}
}

// TestPodGroupCells checks the cells of the table that kubectl prints.
func TestPodGroupCells(t *testing.T) {
	row := rowtest.Row(t, scheduling.Rows(), "podgroups")
	env := resource.CellEnv{Age: func(metav1.Time) string { return "7s" }}
	for object, want := range map[string]string{
		`"spec": {"schedulingPolicy": {"basic": {}}}`: "g Basic <none> Pending 7s",
		`"spec": {"workloadRef": {"workloadName": "w"}, "schedulingPolicy": {"gang": {}}}, "status":
			{"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True"}]}`: "g Gang w Scheduled 7s",
		`"status": {"conditions":
			[{"type": "PodGroupInitiallyScheduled", "status": "False"}]}`: "g Basic <none> Unschedulable 7s",
		`"status": {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True"},
			{"type": "DisruptionTarget", "reason": "PreemptionByScheduler"}]}`: "g Basic <none> PreemptionByScheduler 7s",
	} {
		var words []string
		for _, cell := range row.Cells(rowtest.Decode(t, row, "g", "{"+object+"}"), env) {
			words = append(words, fmt.Sprint(cell))
		}
		if got := strings.Join(words, " "); got != want {
			t.Errorf("%s: %s, want %s", object, got, want)
		}
	}
}
