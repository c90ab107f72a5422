// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package patch_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/apiserver/patch"
)

const doc = `{"metadata":{"name":"a"},"data":{"x":"1"}}`

func decodeConfigMap(b []byte) error {
	var cm corev1.ConfigMap
	return json.Unmarshal(b, &cm)
}

func TestJSON(t *testing.T) {
	tests := map[string]struct {
		kind    types.PatchType
		patch   string
		mode    string
		want    string // the patched document
		code    int32  // status code of the error
		warning string
	}{
		"Merge": {kind: types.MergePatchType, patch: `{"data":{"x":null,"y":"2"}}`,
			want: `{"metadata":{"name":"a"},"data":{"y":"2"}}`},
		"MergeGarbage":   {kind: types.MergePatchType, patch: `{`, code: 400},
		"MergeRepeated":  {kind: types.MergePatchType, patch: `{"a":1,"a":2}`, warning: `duplicate field "a"`},
		"RepeatedStrict": {kind: types.MergePatchType, patch: `{"a":1,"a":2}`, mode: metav1.FieldValidationStrict, code: 422},
		"JSON": {kind: types.JSONPatchType, patch: `[{"op":"add","path":"/data/z","value":"3"}]`,
			want: `{"metadata":{"name":"a"},"data":{"x":"1","z":"3"}}`},
		"TestFails":  {kind: types.JSONPatchType, patch: `[{"op":"test","path":"/data/x","value":"2"}]`, code: 422},
		"NotAList":   {kind: types.JSONPatchType, patch: `{}`, code: 400},
		"NoSuchPath": {kind: types.JSONPatchType, patch: `[{"op":"remove","path":"/data/q"}]`, code: 422},
		"TooMany": {kind: types.JSONPatchType,
			patch: "[" + strings.Repeat(`{"op":"test","path":"/data/x","value":"1"},`, 10000) +
				`{"op":"test","path":"/data/x","value":"1"}]`, code: 413},
		"WrongType": {kind: types.MergePatchType, patch: `{"data":{"x":1}}`, code: 422},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var warnings []string
			strict := patch.Strict{Mode: tt.mode,
				Warn: func(errs []error) { warnings = append(warnings, errors.Join(errs...).Error()) }}
			if strict.Mode == "" {
				strict.Mode = metav1.FieldValidationWarn
			}
			var got []byte
			err := patch.JSON(tt.kind, []byte(doc), []byte(tt.patch), strict, func(b []byte) error {
				got = b
				return decodeConfigMap(b)
			})
			if tt.code != 0 {
				var status apierrors.APIStatus
				if !errors.As(err, &status) || status.Status().Code != tt.code {
					t.Fatalf("error %v, want code %d", err, tt.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.want != "" && !sameJSON(t, got, tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if strings.Join(warnings, ";") != tt.warning {
				t.Errorf("warnings %q, want %q", warnings, tt.warning)
			}
		})
	}
}

func sameJSON(t *testing.T, got []byte, want string) bool {
	t.Helper()
	var a, b any
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(a, b)
}

func TestStrategic(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "x"},
		{Name: "b", Image: "y"}}}}
	out := &corev1.Pod{}
	strict := patch.Strict{Mode: metav1.FieldValidationStrict}
	if err := patch.Strategic(pod, out, []byte(`{"spec":{"containers":[{"name":"b","image":"z"}]}}`), strict); err != nil {
		t.Fatal(err)
	}
	if got := out.Spec.Containers; len(got) != 2 || got[0].Name != "a" && got[1].Name != "a" ||
		got[0].Image+got[1].Image != "xz" && got[0].Image+got[1].Image != "zx" {
		t.Errorf("containers %+v", got)
	}
	err := patch.Strategic(pod, &corev1.Pod{}, []byte(`{"spec":{"foo":1}}`), strict)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `unknown field "spec.foo"`) {
		t.Errorf("unknown field: %v", err)
	}
}

// FuzzPatch applies arbitrary patches. Each error must have a status code for clients, and nothing
// may panic.
func FuzzPatch(f *testing.F) {
	f.Add(byte(0), []byte(`[{"op":"replace","path":"/data/x","value":"2"}]`))
	f.Add(byte(0), []byte(`[{"op":"move","from":"/data","path":"/metadata/labels"}]`))
	f.Add(byte(1), []byte(`{"data":{"x":null},"metadata":{"labels":{"a":"b"}}}`))
	f.Add(byte(2), []byte(`{"data":{"$patch":"replace","q":"r"}}`))
	f.Add(byte(2), []byte(
		`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"$setElementOrder/finalizers":["b"]}}`))
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		if len(data) > 1<<12 {
			return
		}
		strict := patch.Strict{Mode: metav1.FieldValidationWarn, Warn: func([]error) {}}
		if kind%3 == 2 {
			from := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{"a", "b"}},
				Data: map[string]string{"x": "1"}}
			into := runtime.Object(&corev1.ConfigMap{})
			_ = patch.Strategic(from, into, data, strict) // only a panic would be a failure
			return
		}
		patchType := []types.PatchType{types.JSONPatchType, types.MergePatchType}[kind%3]
		// Only a panic would be a failure.
		_ = patch.JSON(patchType, []byte(doc), data, strict, decodeConfigMap)
	})
}
