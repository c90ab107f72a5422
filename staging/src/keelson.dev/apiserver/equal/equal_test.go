// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package equal

import (
	"math/rand/v2"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
)

// vary sets some fields in v to one of a few values, so that random objects are often equal.
func vary(r *rand.Rand, v reflect.Value, often, depth int) {
	if r.IntN(often) > 0 && depth > 0 || depth > 8 {
		return
	}
	switch p := v.Addr().Interface().(type) {
	case *metav1.Time:
		*p = metav1.Unix(int64(r.IntN(2)), 0)
		return
	case *resource.Quantity:
		*p = resource.MustParse([]string{"1", "1000m", "1Gi", "0"}[r.IntN(4)])
		return
	case *metav1.FieldsV1:
		p.SetRawString([]string{"{}", `{"f:a":{}}`}[r.IntN(2)])
		return
	case *runtime.RawExtension:
		p.Raw = []byte{byte(r.IntN(2))}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.SetZero()
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			vary(r, v.Elem(), often, depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				vary(r, v.Field(i), often, depth+1)
			}
		}
	case reflect.Slice:
		v.SetZero()
		if n := r.IntN(3); r.IntN(3) > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				vary(r, v.Index(i), often, depth+1)
			}
		}
	case reflect.Map:
		v.SetZero()
		if r.IntN(3) > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range r.IntN(3) {
				key, val := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				vary(r, key, 1, depth+1)
				vary(r, val, 1, depth+1)
				v.SetMapIndex(key, val)
			}
		}
	case reflect.String:
		v.SetString([]string{"", "a", "b"}[r.IntN(3)])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(int64(r.IntN(2)))
	case reflect.Uint8:
		v.SetUint(uint64(r.IntN(2)))
	}
}

// TestValuesLikeSemantic compares random objects with themselves, with copies, and with slightly
// changed copies. Values must always return the same as apimachinery's Semantic.DeepEqual.
func TestValuesLikeSemantic(t *testing.T) {
	kinds := []func() runtime.Object{
		func() runtime.Object { return &corev1.Pod{} }, func() runtime.Object { return &appsv1.Deployment{} },
		func() runtime.Object { return &corev1.Secret{} }, func() runtime.Object { return &appsv1.ControllerRevision{} },
	}
	outcome := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		a := kinds[r.IntN(len(kinds))]()
		vary(r, reflect.ValueOf(a).Elem(), 2, 0)
		b := a.DeepCopyObject()
		if r.IntN(4) > 0 {
			vary(r, reflect.ValueOf(b).Elem(), 10, 0)
		}
		want := equality.Semantic.DeepEqual(a, b)
		if got := Values(a, b); got != want {
			t.Fatalf("got %v\n%#v\n%#v", got, a, b)
		}
		outcome[want]++
	})
	if !testing.Short() && (outcome[true] == 0 || outcome[false] == 0) { // a short run may not have both results
		t.Errorf("outcomes: %v", outcome)
	}
}

func TestValues(t *testing.T) {
	var none *corev1.Pod
	for name, c := range map[string]struct{ a, b any }{
		"nil":             {nil, nil},
		"nil and a value": {nil, 1},
		"types":           {1, "1"},
		"nil pointers":    {none, none},
		"nil, not nil":    {none, &corev1.Pod{}},
		"floats":          {1.5, 1.5},
		"documents":       {map[string]any{"a": []any{int64(1), "x", nil}}, map[string]any{"a": []any{int64(1), "x", nil}}},
		"other documents": {map[string]any{"a": int64(1)}, map[string]any{"a": 1.0}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := Values(c.a, c.b), equality.Semantic.DeepEqual(c.a, c.b); got != want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func BenchmarkValues(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 0))
	x := &corev1.Pod{}
	vary(r, reflect.ValueOf(x).Elem(), 2, 0)
	y := x.DeepCopy()
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Values(x, y)
		}
	})
	b.Run("semantic", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			equality.Semantic.DeepEqual(x, y)
		}
	})
}
