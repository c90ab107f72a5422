// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"encoding/json"
	"maps"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kjson "sigs.k8s.io/json"
)

const pod = `{"metadata":{"name":"p","finalizers":["a","b","a"],"labels":{"a":"1","b":"2"},"annotations":{"x":"y"},"creationTimestamp":"2020-01-01T00:00:00Z"},
"spec":{"nodeName":"n","hostNetwork":true,"terminationGracePeriodSeconds":30,"nodeSelector":{"a":"b"},
 "containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1"}}}],"securityContext":{"runAsUser":1},"overhead":{"cpu":"100m"},
 "volumes":[{"name":"v","emptyDir":{}}]},
"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}],"podIP":"10.0.0.1","startTime":"2020-01-01T00:00:00Z"}}`

// bySlowPath applies a patch to the JSON document, for comparison with Merge.
func bySlowPath(t *rapid.T, doc, patch []byte) (*corev1.Pod, bool) {
	out := &corev1.Pod{}
	odd := false
	strict := Strict{Mode: metav1.FieldValidationWarn, Warn: func([]error) { odd = true }}
	err := JSON(types.MergePatchType, doc, patch, strict, func(patched []byte) error {
		findings, err := kjson.UnmarshalStrict(patched, out)
		odd = odd || len(findings) > 0
		return err
	})
	return out, err == nil && !odd
}

// TestMergeLikeJSON compares random merge patches of a pod with merges of the JSON documents.
func TestMergeLikeJSON(t *testing.T) {
	var doc map[string]any
	if err := json.Unmarshal([]byte(pod), &doc); err != nil {
		t.Fatal(err)
	}
	handled := 0
	rapid.Check(t, func(t *rapid.T) {
		patch, err := json.Marshal(randomPatch(t, doc))
		if err != nil {
			t.Fatal(err)
		}
		got := &corev1.Pod{}
		if err := json.Unmarshal([]byte(pod), got); err != nil {
			t.Fatal(err)
		}
		doc, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		want, ok := bySlowPath(t, doc, patch)
		if !Merge(got, patch) {
			return
		}
		handled++
		if !ok {
			t.Fatalf("took %s", patch)
		}
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		if string(g) != string(w) || !reflect.DeepEqual(got.Labels, want.Labels) {
			t.Fatalf("%s:\ngot  %s\nwant %s", patch, g, w)
		}
	})
	if !testing.Short() && handled == 0 { // few inputs may have none that Merge handles
		t.Error("no patch was handled")
	}
}

// TestStrategicMergeLikeMaps compares random strategic merge patches of a pod with the library's
// results.
func TestStrategicMergeLikeMaps(t *testing.T) {
	var doc map[string]any
	if err := json.Unmarshal([]byte(pod), &doc); err != nil {
		t.Fatal(err)
	}
	handled, tookOut := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		changes := randomPatch(t, doc)
		directive := rapid.IntRange(0, 1).Draw(t, "directive") == 0
		if directive {
			meta := rapid.SampledFrom([]map[string]any{
				{}, {"uid": "u"}, {"labels": map[string]any{"a": nil, "c": "d"}}, {"finalizers": []any{"z"}},
				{"generateName": nil, "resourceVersion": "7"},
			}).Draw(t, "beside")
			meta = maps.Clone(meta)
			name := rapid.SampledFrom([]string{
				"$deleteFromPrimitiveList/finalizers", "$deleteFromPrimitiveList/labels",
				"$deleteFromPrimitiveList/ownerReferences", "$deleteFromPrimitiveList/none",
				"$patch", "$retainKeys", "$setElementOrder/finalizers",
			}).Draw(t, "which")
			meta[name] = rapid.SampledFrom([]any{[]any{"a"}, []any{"a", "b"}, []any{"c"}, []any{}, []any{nil},
				nil, "replace", []any{7}, map[string]any{}}).Draw(t, "of")
			changes = map[string]any{"metadata": meta}
		}
		patch, err := json.Marshal(changes)
		if err != nil {
			t.Fatal(err)
		}
		got, from, want := &corev1.Pod{}, &corev1.Pod{}, &corev1.Pod{}
		for _, p := range []*corev1.Pod{got, from} {
			if err := json.Unmarshal([]byte(pod), p); err != nil {
				t.Fatal(err)
			}
		}
		odd := false
		err = Strategic(from, want, patch, Strict{Mode: metav1.FieldValidationWarn, Warn: func([]error) { odd = true }})
		if !StrategicMerge(got, patch) {
			return
		}
		if handled++; directive {
			tookOut++
		}
		if err != nil || odd {
			t.Fatalf("took %s, which is %v", patch, err)
		}
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		if string(g) != string(w) {
			t.Fatalf("%s:\ngot  %s\nwant %s", patch, g, w)
		}
	})
	if !testing.Short() && (handled == 0 || tookOut == 0) { // few inputs may have none
		t.Errorf("%d patches were handled, %d with a directive", handled, tookOut)
	}
}

// randomPatch returns a patch that changes some members of doc and adds some that doc does not
// have.
func randomPatch(t *rapid.T, doc map[string]any) map[string]any {
	patch := map[string]any{}
	for name, v := range doc {
		switch rapid.IntRange(0, 9).Draw(t, name) {
		case 0:
			patch[name] = nil
		case 1:
			patch[name] = rapid.SampledFrom([]any{"s", 1, true, 1.5, map[string]any{}, []any{}, []any{nil},
				[]any{map[string]any{"type": "x", "lastProbeTime": nil, "name": nil}},
				map[string]any{"a": nil, "b": "c"}, "2021-01-01T00:00:00Z", "2"}).Draw(t, "value")
		case 2:
			patch[name] = v
		case 3, 4, 5, 6:
			if below, ok := v.(map[string]any); ok {
				patch[name] = randomPatch(t, below)
			}
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "more") == 0 {
		name := rapid.SampledFrom([]string{"new", "finalizers", "affinity", "hostIP", "kind", "priority",
			"dnsConfig", "Name", "initContainers", "conditions"}).Draw(t, "name")
		patch[name] = rapid.SampledFrom([]any{"s", 7, []any{"f"},
			[]any{map[string]any{"name": "x",
				"resources": map[string]any{"limits": map[string]any{"cpu": nil, "memory": 1}}}},
			map[string]any{"nodeAffinity": map[string]any{}},
			map[string]any{"nameservers": []any{"1.1.1.1"}}}).Draw(t, "added")
	}
	return patch
}

func TestMergeGivesUp(t *testing.T) {
	for name, patch := range map[string]string{
		"malformed": `{`, "no object": `[]`, "null": `null`, "unknown field": `{"spec":{"nope":1}}`,
		"other case": `{"Spec":{}}`,
		"twice":      `{"spec":{"nodeName":"a","nodeName":"b"}}`, "kind": `{"kind":"Pod"}`, "version": `{"apiVersion":"v1"}`,
		"type": `{"spec":{"nodeName":1}}`, "object for a string": `{"spec":{"nodeName":{}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if Merge(&corev1.Pod{}, []byte(patch)) {
				t.Error("took it")
			}
		})
	}
}

// BenchmarkFinalizer removes a finalizer from a pod, as the job controller does.
func BenchmarkFinalizer(b *testing.B) {
	patch := []byte(`{"metadata":{"uid":"u","$deleteFromPrimitiveList/finalizers":["a"]}}`)
	cur := &corev1.Pod{}
	if err := json.Unmarshal([]byte(pod), cur); err != nil {
		b.Fatal(err)
	}
	b.Run("typed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !StrategicMerge(cur.DeepCopy(), patch) {
				b.Fatal("gave up")
			}
		}
	})
	b.Run("maps", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := Strategic(cur, &corev1.Pod{}, patch, Strict{Mode: metav1.FieldValidationStrict}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkMerge(b *testing.B) {
	patch := []byte(`{"status":{"phase":"Running","podIP":"10.0.0.2","conditions":[{"type":"Ready","status":"False"}]}}`)
	cur := &corev1.Pod{}
	if err := json.Unmarshal([]byte(pod), cur); err != nil {
		b.Fatal(err)
	}
	b.Run("typed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !Merge(cur.DeepCopy(), patch) {
				b.Fatal("gave up")
			}
		}
	})
	b.Run("documents", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			doc, err := json.Marshal(cur)
			if err != nil {
				b.Fatal(err)
			}
			err = JSON(types.MergePatchType, doc, patch, Strict{Mode: metav1.FieldValidationStrict}, func(patched []byte) error {
				_, err := kjson.UnmarshalStrict(patched, &corev1.Pod{})
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestListsInMaps checks that StrategicMerge rejects a patch of a list in a map, because the
// library returns an error for it, and that Merge replaces the list.
func TestListsInMaps(t *testing.T) {
	type object struct {
		Lists map[string][]string `json:"lists"`
	}
	if StrategicMerge(&object{Lists: map[string][]string{"a": {"b"}}}, []byte(`{"lists":{"a":["c"]}}`)) {
		t.Error("merged")
	}
	got := object{Lists: map[string][]string{"a": {"b"}}}
	if !Merge(&got, []byte(`{"lists":{"a":["c"]}}`)) || got.Lists["a"][0] != "c" {
		t.Errorf("got %v", got)
	}
}
