// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Untagged is value as Kubernetes shows a struct in a message: as JSON with the
// fields' names in Go, because it judges types that have no others.
func Untagged(value any) any {
	var out bytes.Buffer
	if err := writeUntagged(&out, reflect.ValueOf(value)); err != nil {
		return value
	}
	return json.RawMessage(out.Bytes())
}

func writeUntagged(out *bytes.Buffer, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return writeUntagged(out, v.Elem())
		}
	case reflect.Struct:
		if _, ok := v.Interface().(json.Marshaler); ok {
			break
		}
		out.WriteByte('{')
		first := true
		if err := writeFields(out, v, &first); err != nil {
			return err
		}
		out.WriteByte('}')
		return nil
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
			break
		}
		out.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeUntagged(out, v.Index(i)); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	}
	data, err := json.Marshal(v.Interface())
	out.Write(data)
	return err
}

// writeFields writes the fields of a struct and of those it embeds.
func writeFields(out *bytes.Buffer, v reflect.Value, first *bool) error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			if err := writeFields(out, v.Field(i), first); err != nil {
				return err
			}
			continue
		}
		if !*first {
			out.WriteByte(',')
		}
		*first = false
		out.WriteString(`"` + f.Name + `":`)
		if err := writeUntagged(out, v.Field(i)); err != nil {
			return err
		}
	}
	return nil
}
