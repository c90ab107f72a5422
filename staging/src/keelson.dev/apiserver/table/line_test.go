// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package table_test

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/table"
)

// TestAppendRow compares the rows of AppendRow with the output of encoding/json.
func TestAppendRow(t *testing.T) {
	completed := []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue,
		Reason: "Succeeded", Message: "<done>"}}
	for name, line := range map[string]table.Line{
		"none":       {},
		"empty":      {Cells: []any{}},
		"text":       {Cells: []any{"a", "", `<b>&"\`, "é\u2028\x00\xff", "<none>"}},
		"others":     {Cells: []any{int64(-1), int32(2), 1.5, true, nil, []string{"a"}, map[string]any{"b": 1}}},
		"conditions": {Cells: []any{int64(0)}, Conditions: completed},
	} {
		want, err := json.Marshal(metav1.TableRow{Cells: line.Cells, Conditions: line.Conditions})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := table.AppendRow(nil, line, nil); err != nil || string(got) != string(want) {
			t.Errorf("%s: %s, want %s, %v", name, got, want, err)
		}
	}
}
