// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package table makes the rows that kubectl prints from objects and a row of
// the kind table.
package table

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"keelson.dev/apiserver/resource"
)

// Columns are the column definitions of row.
func Columns(row *resource.Row) []metav1.TableColumnDefinition {
	if row.Columns != nil {
		return row.Columns
	}
	doc := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: doc["name"]},
		{Name: "Created At", Type: "date", Description: doc["creationTimestamp"]},
	}
}

// CellPaths are the fields that the cells of a row's objects are made of; none
// means all.
func CellPaths(row *resource.Row) []string {
	if row.Cells == nil {
		return []string{"metadata.name", "metadata.creationTimestamp"}
	}
	return row.CellPaths
}

// Line is what a row says of its object.
type Line struct {
	Cells      []any                      `json:"cells"`
	Conditions []metav1.TableRowCondition `json:"conditions,omitempty"`
}

// LineOf is the line of obj.
func LineOf(row *resource.Row, obj resource.Object, now time.Time) Line {
	return line(row, obj, func(t metav1.Time) string { return Age(t, now) })
}

func line(row *resource.Row, obj resource.Object, age func(metav1.Time) string) Line {
	if row.Cells == nil {
		return Line{Cells: []any{obj.GetName(), obj.GetCreationTimestamp().UTC().Format(time.RFC3339)}}
	}
	l := Line{Cells: row.Cells(obj, resource.CellEnv{Age: age})}
	if row.RowConditions != nil {
		l.Conditions = row.RowConditions(obj)
	}
	return l
}

// Age prints the time since t as kubectl does.
func Age(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

// AppendRow appends a row as JSON; object is what it includes, encoded, or empty.
func AppendRow(dst []byte, line Line, object []byte) ([]byte, error) {
	encoded, err := json.Marshal(line)
	if err != nil {
		return nil, err
	}
	dst = append(dst, encoded[:len(encoded)-1]...)
	dst = append(dst, `,"object":`...)
	if len(object) == 0 {
		object = []byte("null")
	}
	dst = append(dst, object...)
	return append(dst, '}'), nil
}

// AppendHead appends the beginning of a Table, up to and with the bracket that
// opens its rows. Without columns the definitions are null.
func AppendHead(dst []byte, version string, meta metav1.ListMeta, columns []metav1.TableColumnDefinition) ([]byte, error) {
	m, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	c, err := json.Marshal(columns)
	if err != nil {
		return nil, err
	}
	dst = append(dst, `{"kind":"Table","apiVersion":"meta.k8s.io/`...)
	dst = append(dst, version...)
	dst = append(dst, `","metadata":`...)
	dst = append(dst, m...)
	dst = append(dst, `,"columnDefinitions":`...)
	dst = append(dst, c...)
	return append(dst, `,"rows":[`...), nil
}

// AppendTail appends the end of a Table.
func AppendTail(dst []byte) []byte { return append(dst, "]}"...) }
