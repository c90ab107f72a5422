// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

// model is apimachinery's field manager for one endpoint. The tests compare Keepers with it.
type model struct{ *managedfields.FieldManager }

func newModel(t testing.TB, converter managedfields.TypeConverter, gvk schema.GroupVersionKind,
	subresource string, reset []string) model {
	t.Helper()
	k := New(Config{Kind: gvk, Reset: reset})
	fm, err := managedfields.NewDefaultFieldManager(converter, scheme.Scheme, scheme.Scheme, scheme.Scheme, gvk,
		gvk.GroupVersion(),
		subresource, excludes(gvk, k.reset))
	if err != nil {
		t.Fatal(err)
	}
	return model{fm}
}

// kinds returns the kinds of client-go for which converter has a schema.
func kinds(converter managedfields.TypeConverter) []schema.GroupVersionKind {
	var out []schema.GroupVersionKind
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		obj, ok := reflect.New(t).Interface().(Object)
		if !ok || gvk.Version == runtime.APIVersionInternal || strings.HasSuffix(gvk.Kind, "List") {
			continue
		}
		obj.GetObjectKind().SetGroupVersionKind(gvk)
		if _, err := converter.ObjectToTyped(obj); err == nil {
			out = append(out, gvk)
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func newObject(t testing.TB, gvk schema.GroupVersionKind) Object {
	t.Helper()
	obj, err := scheme.Scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(Object)
}

// filler fills objects with random values, and changes them at random.
type filler struct {
	*rand.Rand
	depth int
}

var words = []string{"a", "b", "c", "name", "x/y.z", "TCP", "10.0.0.1", "10.0.0.10"}

// fill sets random parts of v. It sets a pointer with the probability 1/odds.
func (f *filler) fill(v reflect.Value, odds int) {
	if f.depth > 9 {
		return
	}
	f.depth++
	defer func() { f.depth-- }()
	if f.special(v) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if f.IntN(odds) > 0 {
			v.SetZero()
			return
		}
		p := reflect.New(v.Type().Elem())
		f.fill(p.Elem(), odds)
		v.Set(p)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i), odds)
			}
		}
	case reflect.Slice:
		f.slice(v, odds)
	case reflect.Map:
		f.dictionary(v, odds)
	case reflect.String:
		v.SetString(words[f.IntN(len(words))])
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.IntN(4)))
	case reflect.Uint8:
		v.SetUint(uint64(f.IntN(4)))
	case reflect.Float64, reflect.Float32:
		v.SetFloat(float64(f.IntN(4)) / 2)
	}
}

func (f *filler) special(v reflect.Value) bool {
	switch p := v.Addr().Interface().(type) {
	case *metav1.TypeMeta, *[]metav1.ManagedFieldsEntry, *runtime.RawExtension:
	case *metav1.Time:
		*p = metav1.Unix(int64(f.IntN(3))*1000, 0)
	case *metav1.MicroTime:
		p.Time = metav1.Unix(int64(f.IntN(3))*1000, 5000).Time
	case *resource.Quantity:
		*p = resource.MustParse([]string{"1", "100m", "2Gi", "1500M", "1.5"}[f.IntN(5)])
	case *intstr.IntOrString:
		*p = []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("a")}[f.IntN(2)]
	default:
		return false
	}
	return true
}

func (f *filler) slice(v reflect.Value, odds int) {
	switch f.IntN(odds + 1) {
	case 0:
		v.SetZero()
		return
	case 1:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		return
	}
	n := 1 + f.IntN(3)
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		f.fill(v.Index(i), odds)
	}
}

func (f *filler) dictionary(v reflect.Value, odds int) {
	switch f.IntN(odds + 1) {
	case 0:
		v.SetZero()
		return
	case 1:
		v.Set(reflect.MakeMap(v.Type()))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for range 1 + f.IntN(3) {
		key, val := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, odds)
		f.fill(val, odds)
		v.SetMapIndex(key, val)
	}
}

// change sets some random parts of v to other values.
func (f *filler) change(v reflect.Value, odds int) {
	if _, owners := v.Addr().Interface().(*[]metav1.ManagedFieldsEntry); owners {
		return
	}
	if f.IntN(12) == 0 {
		f.fill(v, odds)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			f.change(v.Elem(), odds)
		}
	case reflect.Struct:
		if f.special(reflect.New(v.Type()).Elem()) {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.change(v.Field(i), odds)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			f.change(v.Index(i), odds)
		}
		if v.Len() > 1 && f.IntN(4) == 0 {
			v.Set(v.Slice(0, v.Len()-1))
		}
	}
}

// world is a random object with the Keepers and models that write it.
type world struct {
	keepers map[string]*Keeper
	models  map[string]model
	gvk     schema.GroupVersionKind
	known   int
	asked   int
}

func newWorld(t testing.TB, types *Types, converter managedfields.TypeConverter, gvk schema.GroupVersionKind) *world {
	w := &world{keepers: make(map[string]*Keeper), models: make(map[string]model), gvk: gvk}
	for sub, reset := range map[string][]string{"": {"status"}, "status": {"spec", "metadata.labels"}} {
		w.models[sub] = newModel(t, converter, gvk, sub, reset)
		w.keepers[sub] = New(Config{
			Types: types, Converter: converter, Kind: gvk, Subresource: sub, Reset: reset,
			New: func() Object { return newObject(t, gvk) },
		})
	}
	return w
}

// update makes one update with the Keeper and with apimachinery, and compares the results.
func (w *world) update(t testing.TB, sub, who string, live, obj Object) Object {
	t.Helper()
	live.GetObjectKind().SetGroupVersionKind(w.gvk)
	obj.GetObjectKind().SetGroupVersionKind(w.gvk)
	start := metav1.Now()
	want := w.models[sub].UpdateNoErrors(live.DeepCopyObject(), obj.DeepCopyObject(), who).(Object)
	now := metav1.Now()
	got := obj.DeepCopyObject().(Object)
	before := live.DeepCopyObject()
	w.asked++
	if !w.keepers[sub].Update(live, got, who, now) {
		if !reflect.DeepEqual(got, obj) {
			t.Fatal("gave up, but changed the object")
		}
		return want
	}
	w.known++
	if !reflect.DeepEqual(live, before) {
		t.Fatal("changed the live object")
	}
	inOrder := start.Unix() == now.Unix()
	if g, x := spell(got, inOrder), spell(want, inOrder); g != x {
		t.Fatalf("%s by %q, subresource %q:\ngot  %s\nwant %s\nlive %#v\nobj %#v", w.gvk, who, sub, g, x, live, obj)
	}
	got.SetManagedFields(want.GetManagedFields())
	if !reflect.DeepEqual(got, want) {
		t.Fatal("changed more than managedFields")
	}
	return want
}

// spell formats managedFields without times. It sorts the entries unless inOrder is set: their
// order depends on their times in seconds, so it can be compared only if the Keeper and the model
// wrote in the same second.
func spell(obj Object, inOrder bool) string {
	var lines []string
	for _, e := range obj.GetManagedFields() {
		at := "-"
		if e.Time != nil {
			at = "now"
			if e.Time.Year() < 2000 {
				at = e.Time.String()
			}
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %q %s %s %s", e.Manager, e.Operation, e.APIVersion,
			e.Subresource, at, e.FieldsType, e.FieldsV1.GetRawString()))
	}
	if !inOrder {
		slices.Sort(lines)
	}
	return strings.Join(lines, "\n")
}

func testConverter() managedfields.TypeConverter {
	return applyconfigurations.NewTypeConverter(scheme.Scheme)
}
