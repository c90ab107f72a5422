// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling_test

import (
	"reflect"
	"strings"
	"testing"

	"keelson.dev/keelson/pkg/api/rowtest"
	"keelson.dev/keelson/pkg/api/scheduling"
)

const workload = `{metadata: {name: w, namespace: ns}, spec: {controllerRef: {apiGroup: batch, kind: Job, name: j},
	podGroupTemplates: [{name: a, schedulingPolicy: {gang: {minCount: 2}}},
	{name: b, schedulingPolicy: {basic: {}}, disruptionMode: {all: {}}}]}}`

// templates returns a patch of a workload's templates.
func templates(list string) string { return `spec: {podGroupTemplates: [` + list + `]}` }

// TestWorkload checks which workloads and changes of workloads are valid.
func TestWorkload(t *testing.T) {
	const (
		a      = `{name: a, schedulingPolicy: {gang: {minCount: 2}}}`
		b      = `{name: b, schedulingPolicy: {basic: {}}, disruptionMode: {all: {}}}`
		many   = `{name: t%, schedulingPolicy: {basic: {}}},`
		prefix = "spec.podGroupTemplates[0]."
	)
	var nine strings.Builder
	for _, n := range strings.Split("123456789", "") {
		nine.WriteString(strings.ReplaceAll(many, "%", n))
	}
	row := rowtest.Row(t, scheduling.Rows(), "workloads")
	rowtest.Creates(t, row, workload, []rowtest.Case{
		{"valid", ``, ""},
		{"no controller", `spec: {controllerRef: null}`, ""},
		{"empty controller", `spec: {controllerRef: {apiGroup: "", kind: "", name: ""}}`,
			"spec.controllerRef.kind: Required value, spec.controllerRef.name: Required value"},
		{"invalid controller", `spec: {controllerRef: {apiGroup: A, kind: a/b, name: ..}}`,
			"spec.controllerRef.apiGroup: Invalid value, spec.controllerRef.kind: Invalid value, " +
				"spec.controllerRef.name: Invalid value"},
		{"no templates", templates(""), "spec: Invalid value"},
		{"templates of another feature", `spec: {podGroupTemplates: [], compositePodGroupTemplates: [{name: c}]}`,
			"spec: Invalid value"},
		{"many templates", templates(nine.String()), "spec.podGroupTemplates: Too many"},
		{"same name", templates(a + "," + a), "spec.podGroupTemplates[1]: Duplicate value"},
		{"no name", templates(`{schedulingPolicy: {basic: {}}}`), prefix + "name: Required value"},
		{"invalid name", templates(`{name: A, schedulingPolicy: {basic: {}}}`), prefix + "name: Invalid value"},
		{"no policy", templates(`{name: a}`), prefix + "schedulingPolicy: Invalid value"},
		{"no count", templates(`{name: a, schedulingPolicy: {gang: {}}}`),
			prefix + "schedulingPolicy.gang.minCount: Required value"},
		{"disruption", templates(`{name: a, schedulingPolicy: {basic: {}}, disruptionMode: {}}`),
			prefix + "disruptionMode: Invalid value"},
		{"priority", templates(`{name: a, schedulingPolicy: {basic: {}}, priorityClassName: A, priority: 1000000001}`),
			prefix + "priorityClassName: Invalid value, " + prefix + "priority: Invalid value"},
		{"two priorities", templates(`{name: a, schedulingPolicy: {basic: {}}, priority: 1}, ` + b), "spec: Invalid value"},
		{"two classes", templates(`{name: a, schedulingPolicy: {basic: {}}, priorityClassName: c}, ` + b),
			"spec: Invalid value"},
		{"fields of other features", templates(`{name: a, schedulingPolicy: {basic: {}}, preemptionPolicy: x,
			schedulingConstraints: {topology: [{key: ""}]}, resourceClaims: [{name: ""}]}`), ""},
	})
	rowtest.Updates(t, row, "", workload, []rowtest.Case{
		{"nothing", ``, ""},
		{"count", templates(`{name: a, schedulingPolicy: {gang: {minCount: 3}}}, ` + b), ""},
		{"order", templates(b + "," + a), ""},
		{"no count", templates(`{name: a, schedulingPolicy: {gang: {minCount: 0}}}, ` + b),
			prefix + "schedulingPolicy.gang.minCount: Required value"},
		{"controller", `spec: {controllerRef: null}`, "spec.controllerRef: Invalid value"},
		{"added", templates(a + "," + b + `, {name: c}`), "spec.podGroupTemplates[2]: Forbidden"},
		{"removed", templates(a), "spec.podGroupTemplates: Forbidden"},
		{"none left", templates(""), "spec: Invalid value, spec.podGroupTemplates: Forbidden"},
		{"same name", templates(a + "," + b + "," + b), "spec.podGroupTemplates[2]: Duplicate value"},
		{"fixed fields", templates(`{name: a, schedulingPolicy: {gang: {minCount: 2}}, disruptionMode: {single: {}},
			priorityClassName: c, priority: 1}, {name: b, schedulingPolicy: {basic: {}}, disruptionMode: {all: {}},
			priorityClassName: c, priority: 1}`), "spec.podGroupTemplates[0].disruptionMode: Invalid value, " +
			"spec.podGroupTemplates[0].priorityClassName: Invalid value, spec.podGroupTemplates[0].priority: Invalid value, " +
			"spec.podGroupTemplates[1].priorityClassName: Invalid value, spec.podGroupTemplates[1].priority: Invalid value"},
	})
}

// TestWorkloadMessages checks the messages of errors, which must be those of Kubernetes.
func TestWorkloadMessages(t *testing.T) {
	row := rowtest.Row(t, scheduling.Rows(), "workloads")
	empty := rowtest.Decode(t, row, "w", `{"spec": {}}`)
	rowtest.Check(t, row.Validate(t.Context(), empty), []string{
		"spec: Invalid value: \"\": must specify one of: `podGroupTemplates`, `compositePodGroupTemplates`",
	})
	two := rowtest.Decode(t, row, "w", `{"spec": {"podGroupTemplates": [{"name": "a", "schedulingPolicy": {"basic": {}}},
		{"name": "b", "schedulingPolicy": {"basic": {}}, "priority": 1}]}}`)
	rowtest.Check(t, row.Validate(t.Context(), two), []string{
		"spec: Invalid value: null: detected multiple priority configurations",
	})
	one := rowtest.Decode(t, row, "w", `{"spec": {"podGroupTemplates":
		[{"name": "c", "schedulingPolicy": {"basic": {}}}]}}`)
	rowtest.Check(t, row.ValidateUpdate(t.Context(), one, two), []string{
		"spec.podGroupTemplates[0]: Forbidden: item may not be added",
		"spec.podGroupTemplates: Forbidden: item may not be removed",
	})
}

// TestWorkloadPrepared checks that fields of features that are off are dropped, unless the stored
// object has them.
func TestWorkloadPrepared(t *testing.T) {
	row := rowtest.Row(t, scheduling.Rows(), "workloads")
	const all = `{"spec": {"podGroupTemplates": [{"name": "a", "schedulingPolicy": {"basic": {}},
		"preemptionPolicy": "Never", "schedulingConstraints": {"topology": [{"key": "k"}]},
		"resourceClaims": [{"name": "c"}]}], "compositePodGroupTemplates": [{"name": "c"}]}}`
	created := rowtest.Decode(t, row, "w", all)
	row.PrepareCreate(t.Context(), created)
	plain := rowtest.Decode(t, row, "w", `{"spec": {"podGroupTemplates":
		[{"name": "a", "schedulingPolicy": {"basic": {}}}]}}`)
	if !reflect.DeepEqual(created, plain) {
		t.Errorf("created %+v, want %+v", created, plain)
	}
	stored, updated := rowtest.Decode(t, row, "w", all), rowtest.Decode(t, row, "w", all)
	row.PrepareUpdate(t.Context(), updated, stored)
	if !reflect.DeepEqual(updated, stored) {
		t.Errorf("updated %+v, want the fields of the stored object %+v", updated, stored)
	}
	rowtest.Check(t, row.ValidateUpdate(t.Context(), updated, stored), nil)
}
