// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package table makes the rows of the tables that kubectl prints, with the columns that the kind
// table (package resource) declares.
package table

import (
	"encoding/json"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/transcode"
)

// Columns returns the column definitions of a resource's Table.
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

// CellPaths returns the fields of a resource's objects on which the cells of a Table depend. Nil
// means all fields.
func CellPaths(row *resource.Row) []string {
	if row.Cells == nil {
		return []string{"metadata.name", "metadata.creationTimestamp"}
	}
	return row.CellPaths
}

// Line is the content of a table row without the object.
type Line struct {
	Cells      []any
	Conditions []metav1.TableRowCondition
}

// LineOf returns the line of obj.
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

// AppendRow appends a table row as JSON. object is the encoded object that the row includes, or
// empty.
func AppendRow(dst []byte, line Line, object []byte) ([]byte, error) {
	dst, err := AppendLine(dst, line)
	if err != nil {
		return nil, err
	}
	if len(object) == 0 {
		object = []byte("null")
	}
	dst = append(dst, object...)
	return append(dst, '}'), nil
}

// AppendLine appends the beginning of a table row, up to the object that it includes.
func AppendLine(dst []byte, line Line) ([]byte, error) {
	dst = append(dst, `{"cells":`...)
	if line.Cells == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, '[')
		for i, cell := range line.Cells {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = appendCell(dst, cell); err != nil {
				return nil, err
			}
		}
		dst = append(dst, ']')
	}
	if len(line.Conditions) > 0 {
		encoded, err := json.Marshal(line.Conditions)
		if err != nil {
			return nil, err
		}
		dst = append(append(dst, `,"conditions":`...), encoded...)
	}
	return append(dst, `,"object":`...), nil
}

// appendCell appends the value of a cell as JSON. It has fast paths for strings and integers, which
// nearly all cells are.
func appendCell(dst []byte, cell any) ([]byte, error) {
	switch c := cell.(type) {
	case string:
		return transcode.AppendString(dst, c), nil
	case int64:
		return strconv.AppendInt(dst, c, 10), nil
	}
	encoded, err := json.Marshal(cell)
	return append(dst, encoded...), err
}

// AppendHead appends the beginning of a Table, up to and including the bracket before its rows. The
// column definitions are null if there are no columns.
func AppendHead(dst []byte, version string, meta metav1.ListMeta, columns []metav1.TableColumnDefinition) (
	[]byte, error) {
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
