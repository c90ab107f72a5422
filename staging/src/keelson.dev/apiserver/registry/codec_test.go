// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/transcode"
	"keelson.dev/apiserver/wire"
)

// stored returns the envelope of an object.
func stored(t testing.TB, apiVersion, kind string, obj wire.Message) []byte {
	t.Helper()
	header := wire.NewHeader(apiVersion, kind)
	data, err := header.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestDecode reads stored bytes of every form that a kind may have been stored in.
func TestDecode(t *testing.T) {
	row := autoscalers()
	row.Default = func(obj resource.Object) {
		if a := obj.(*autoscalingv2.HorizontalPodAutoscaler); a.Spec.MinReplicas == nil {
			a.Spec.MinReplicas = new(int32(2))
		}
	}
	row.Restore = func(obj resource.Object) { obj.SetGenerateName("restored") }
	row.Scheme = known()
	row.StoredForms = []resource.StoredForm{{
		Kind: schema.GroupVersionKind{
			Version: "v1", Kind: "ConfigMap",
		}, New: func() resource.Object { return &corev1.ConfigMap{} },
		ToStorage: func(obj resource.Object) (resource.Object, error) {
			if obj.GetName() == "bad" {
				return nil, errors.New("not this one")
			}
			return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: obj.(*corev1.ConfigMap).ObjectMeta}, nil
		},
	}}
	meta := metav1.ObjectMeta{Name: "a"}
	v1 := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: meta, Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 4},
	}
	v2 := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: meta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 4},
	}
	for name, tc := range map[string]struct {
		data  []byte
		text  string
		least int32
		most  int32
	}{
		"own version":     {data: stored(t, "autoscaling/v2", "HorizontalPodAutoscaler", v2), least: 2, most: 4},
		"another version": {data: stored(t, "autoscaling/v1", "HorizontalPodAutoscaler", v1), least: 1, most: 4},
		"no kind":         {data: stored(t, "", "", v2), least: 2, most: 4},
		"JSON": {
			data: []byte(
				`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"},"spec":{"maxReplicas":4}}`,
			),
			least: 2, most: 4,
		},
		"JSON, v1": {
			data: []byte(
				`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"},"spec":{"maxReplicas":4}}`,
			),
			least: 1, most: 4,
		},
		"another form": {data: stored(t, "v1", "ConfigMap", &corev1.ConfigMap{ObjectMeta: meta}), least: 2},
		"invalid form": {
			data: stored(t, "v1", "ConfigMap", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}),
			text: "not this one",
		},
		"invalid JSON": {
			data: []byte(`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","spec":[]}`),
			text: "json: cannot unmarshal array",
		},
		"no JSON": {data: []byte(`x`), text: "couldn't get version/kind; json parse error"},
		"JSON, kind": {
			data: []byte(`{"apiVersion":"v9","kind":"Nothing"}`), text: `no kind "Nothing" is registered for version "v9"`,
		},
		"other kind": {
			data: stored(t, "v1", "Secret", &corev1.Secret{}),
			text: "converting (v1.Secret) to (autoscaling.HorizontalPodAutoscaler): unknown conversion",
		},
		"unknown kind": {
			data: stored(t, "v9", "Nothing", &corev1.Secret{}), text: `no kind "Nothing" is registered for version "v9"`,
		},
		"encrypted": {
			data: []byte("k8s:enc:aescbc:v1:key:…"), text: "identity transformer tried to read encrypted data",
		},
		"empty envelope": {data: []byte("k8s\x00"), text: "empty body"},
		"cut envelope":   {data: []byte("k8s\x00\x0a\x7f"), text: "unexpected EOF"},
		"cut object": {
			data: stored(t, "autoscaling/v2", "HorizontalPodAutoscaler", &runtime.Unknown{Raw: []byte{1}, ContentType: "x"}),
			text: "proto",
		},
	} {
		t.Run(name, func(t *testing.T) {
			obj, err := registry.Codec(row).Decode(tc.data, 5)
			if tc.text != "" {
				if err == nil || !strings.Contains(err.Error(), tc.text) {
					t.Errorf("error: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			a := obj.(*autoscalingv2.HorizontalPodAutoscaler)
			if a.Name != "a" || a.ResourceVersion != "5" || a.GenerateName != "restored" || a.Kind != "" ||
				*a.Spec.MinReplicas != tc.least || a.Spec.MaxReplicas != tc.most {
				t.Errorf("%+v", a)
			}
		})
	}
	if _, err := registry.Codec(row).Encode(&unstructured.Unstructured{}); err == nil {
		t.Error("an object without a protobuf type is encoded")
	}
}

// TestReencode checks which stored bytes Reencode changes.
func TestReencode(t *testing.T) {
	row := autoscalers()
	reencode := registry.Reencode(row)
	meta := metav1.ObjectMeta{Name: "a"}
	old := stored(
		t, "autoscaling/v1", "HorizontalPodAutoscaler",
		&autoscalingv1.HorizontalPodAutoscaler{
			ObjectMeta: meta, Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 4},
		},
	)
	for name, tc := range map[string]struct {
		data    []byte
		changed bool
	}{
		"own version": {
			data: stored(
				t, "autoscaling/v2", "HorizontalPodAutoscaler", &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta},
			),
		},
		"old version": {data: old, changed: true},
		"JSON":        {data: []byte(`{}`)},
		"broken":      {data: []byte("k8s\x00\x0a\x7f")},
	} {
		data, changed := reencode(tc.data)
		if changed != tc.changed || changed == slices.Equal(data, tc.data) {
			t.Errorf("%s: changed %v: %q", name, changed, data)
		}
		if !changed {
			continue
		}
		if obj, err := registry.Codec(row).Decode(data, 1); err != nil ||
			obj.(*autoscalingv2.HorizontalPodAutoscaler).Spec.MaxReplicas != 4 {
			t.Errorf("%s: %v, %v", name, obj, err)
		}
	}
	if registry.Reencode(widgets()) != nil {
		t.Error("a row with a codec of its own is encoded again")
	}
}

// TestReencodeDefaults checks that Reencode adds defaults to objects in the current version if
// DefaultsChanged is set: older servers did not store these defaults.
func TestReencodeDefaults(t *testing.T) {
	row := autoscalers()
	row.Default = func(obj resource.Object) { obj.SetLabels(map[string]string{"default": "yes"}) }
	bare := stored(t, "autoscaling/v2", "HorizontalPodAutoscaler",
		&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if data, changed := registry.Reencode(row)(bare); changed {
		t.Errorf("encoded again as %q, although defaults have not changed", data)
	}
	row.DefaultsChanged = true
	reencode := registry.Reencode(row)
	data, changed := reencode(bare)
	if obj, err := registry.Codec(row).Decode(data, 1); !changed || err != nil || !strings.Contains(string(data), "yes") {
		t.Errorf("without the default: %v, %v, %v", changed, obj, err)
	}
	if data, changed := reencode(data); changed {
		t.Errorf("with the default: encoded again as %q", data)
	}
}

// TestPart checks that Part decodes only the requested fields, that decoding several objects into
// the same memory does not mix them, and that Peek finds attributes without decoding other fields.
func TestPart(t *testing.T) {
	row, types := pods(), transcode.NewTypes()
	data := func(name string, containers ...string) []byte {
		p := pod(name)
		p.Namespace, p.Labels, p.Spec.NodeName, p.Spec.Containers = "ns", map[string]string{"a": name}, "node", nil
		for _, c := range containers {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c, Image: "image"})
		}
		return stored(t, "v1", "Pod", p)
	}
	paths := []string{"metadata.name", "spec.containers.name"}
	check := func(t *testing.T, obj store.Object, ok bool, name string, containers ...string) {
		t.Helper()
		p := obj.(*corev1.Pod)
		var got []string
		for _, c := range p.Spec.Containers {
			got = append(got, c.Name+c.Image)
		}
		if !ok || p.Name != name || p.Labels != nil || p.Spec.NodeName != "" || !slices.Equal(got, containers) {
			t.Errorf("part %v: %+v", ok, p)
		}
	}
	part := registry.Part(row, types, paths...)
	obj, ok := part(data("p", "one", "two"))
	check(t, obj, ok, "p", "one", "two")
	next := registry.Parts(row, types, paths...)()
	for _, containers := range [][]string{{"one", "two"}, {"three"}, nil, {"four", "five", "six"}} {
		obj, ok := next(data("q", containers...))
		check(t, obj, ok, "q", containers...)
	}
	for name, tc := range map[string]func([]byte) (store.Object, bool){
		"no paths": registry.Part(row, types), "other codec": registry.Part(widgets(), types, paths...),
		"unknown path": registry.Part(row, types, "spec.nothing"),
	} {
		if _, ok := tc(data("p")); ok {
			t.Errorf("%s: a part is decoded", name)
		}
	}
	if _, ok := part([]byte(`{}`)); ok {
		t.Error("a part of JSON is decoded")
	}

	peek := registry.Peek(row, types)
	for range 2 { // the second decoding reuses the object of the first one
		attrs, ok := peek(data("p"))
		if !ok || attrs.Labels.Get("a") != "p" || attrs.Fields.Get("spec.nodeName") != "node" ||
			attrs.Fields.Get("metadata.namespace") != "ns" {
			t.Errorf("attributes %v: %v", ok, attrs)
		}
	}
	if _, ok := peek([]byte("{}")); ok {
		t.Error("attributes of JSON are found")
	}
	all := pods(func(k *resource.Kind[*corev1.Pod]) { k.FieldPaths = nil })
	if registry.Peek(all, types) != nil || registry.Peek(widgets(), types) != nil {
		t.Error("attributes are found without knowing what they need")
	}
	peeking := widgets()
	peeking.Peek = func([]byte) (store.Attrs, bool) {
		return store.Attrs{Labels: map[string]string{"by": "row"}}, true
	}
	if attrs, ok := registry.Peek(peeking, types)(nil); !ok || attrs.Labels.Get("by") != "row" {
		t.Error("the row's Peek is not called")
	}
}
