// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/store"
)

// codec is a store.Codec for a resource; the test calls none of its methods.
type codec struct{ store.Codec }

// fill sets v and all its fields to values that are not zero.
func fill(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32:
		v.SetInt(1)
	case reflect.String:
		v.SetString("x")
	case reflect.Func:
		v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) []reflect.Value { return nil }))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Interface:
		v.Set(reflect.ValueOf(codec{}))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, v.Field(i))
			}
		}
	case reflect.Uint:
		v.SetUint(1)
	default:
		t.Fatalf("no value for %s", v.Type())
	}
}

// missing returns the paths of the fields of v that are zero.
func missing(path string, v reflect.Value) (paths []string) {
	if v.IsZero() {
		return []string{path}
	}
	switch v.Kind() {
	case reflect.Slice:
		return missing(path+"[0]", v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				paths = append(paths, missing(path+"."+f.Name, v.Field(i))...)
			}
		}
	}
	return paths
}

func TestOfKeepsEveryField(t *testing.T) {
	var k Kind[*corev1.Pod]
	fill(t, reflect.ValueOf(&k).Elem())
	row := Of[corev1.PodList](k)
	for _, path := range missing("Row", reflect.ValueOf(row).Elem()) {
		t.Errorf("Of does not copy %s", path)
	}
	if _, ok := row.New().(*corev1.Pod); !ok {
		t.Errorf("New returns %T", row.New())
	}
}

func TestOfFillsDefaults(t *testing.T) {
	row := Of[corev1.PodList](Kind[*corev1.Pod]{Version: "v1", Resource: "pods", Kind: "Pod"})
	if row.Singular != "pod" || row.ListKind != "PodList" || row.StoragePrefix != "pods" || !row.Serves("v1") ||
		row.Validate != nil {
		t.Errorf("got %+v", row)
	}
}
