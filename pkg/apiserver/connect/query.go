// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decodeQuery decodes a query into the struct that into points to, as Kubernetes does. Parameters
// have the JSON names of fields. A field that is no slice gets the first value. A boolean is true
// unless its value is "false" or "0".
func decodeQuery(q url.Values, into any) error {
	v := reflect.ValueOf(into).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		values, given := q[name]
		if name == "" || !given || len(values) == 0 {
			continue
		}
		if err := setField(v.Field(i), values); err != nil {
			return err // returned unwrapped, because clients get the parser's message
		}
	}
	return nil
}

func setField(f reflect.Value, values []string) error {
	value := values[0]
	switch f.Kind() {
	case reflect.Pointer:
		if value == "" {
			return nil
		}
		f.Set(reflect.New(f.Type().Elem()))
		return setField(f.Elem(), values)
	case reflect.String:
		f.SetString(value)
	case reflect.Bool:
		f.SetBool(!strings.EqualFold(value, "false") && value != "0")
	case reflect.Int64, reflect.Int32:
		n, err := strconv.ParseInt(value, 10, f.Type().Bits())
		if err != nil {
			return err
		}
		f.SetInt(n)
	case reflect.Slice:
		return setSlice(f, values)
	case reflect.Struct:
		t, err := time.Parse(time.RFC3339, value)
		if err != nil {
			return err
		}
		f.Set(reflect.ValueOf(metav1.NewTime(t)))
	default:
		return fmt.Errorf("field has unsupported type %s", f.Type())
	}
	return nil
}

// setSlice sets f to all values. A value may contain several numbers, separated by commas.
func setSlice(f reflect.Value, values []string) error {
	switch into := f.Addr().Interface().(type) {
	case *[]string:
		*into = slices.Clone(values)
	case *[]int32:
		*into = nil
		return metav1.Convert_Slice_string_To_Slice_int32(&values, into, nil)
	default:
		return fmt.Errorf("field has unsupported type %s", f.Type())
	}
	return nil
}
