// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kjson "sigs.k8s.io/json"
)

// document returns a configuration with some fields of obj, as JSON.
func (f *filler) document(t testing.TB, obj Object, keep int) []byte {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	f.thin(doc, keep)
	gvk := obj.GetObjectKind().GroupVersionKind()
	doc["apiVersion"], doc["kind"] = gvk.GroupVersion().String(), gvk.Kind
	metadata, ok := doc["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		doc["metadata"] = metadata
	}
	delete(metadata, "managedFields")
	if data, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	return data
}

// thin removes random members of v, and replaces some by null or empty values.
func (f *filler) thin(v any, keep int) {
	switch v := v.(type) {
	case map[string]any:
		for name, below := range v {
			if b, ok := below.(bool); ok && b && f.IntN(8) == 0 {
				v[name] = false
			}
			if below == nil && f.IntN(4) > 0 || f.IntN(keep) == 0 {
				delete(v, name)
				continue
			}
			f.thin(below, keep+2)
		}
	case []any:
		f.Shuffle(len(v), func(i, j int) {
			if f.IntN(4) == 0 {
				v[i], v[j] = v[j], v[i]
			}
		})
		for _, below := range v {
			f.thin(below, keep+4)
		}
	}
}

// apply applies one configuration with the Keeper and with apimachinery, and compares the results.
func (w *world) apply(t testing.TB, live Object, data []byte, who string, force bool) Object {
	t.Helper()
	live.GetObjectKind().SetGroupVersionKind(w.gvk)
	config := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &config.Object); err != nil {
		t.Fatal(err)
	}
	start := metav1.Now()
	out, err := w.models[""].Apply(live.DeepCopyObject(), config, who, force)
	now := metav1.Now()
	var fields map[string]any
	if _, err := kjson.UnmarshalStrict(data, &fields); err != nil {
		t.Fatal(err)
	}
	before := live.DeepCopyObject()
	got, _, ok := w.keepers[""].Apply(live, Configuration{Fields: fields, Data: data, Manager: who, Force: force}, now)
	if !reflect.DeepEqual(live, before) {
		t.Fatal("changed the live object")
	}
	w.asked++
	switch {
	case err != nil && ok:
		t.Fatalf("applied what cannot be: %v\n%s", err, data)
	case err != nil:
		return nil
	}
	want := out.(Object)
	if !ok {
		return want
	}
	w.known++
	inOrder := start.Unix() == now.Unix()
	if g, x := spell(got, inOrder), spell(want, inOrder); g != x {
		t.Fatalf("%s by %q:\ngot  %s\nwant %s\nlive %s %s\nconfig %s", w.gvk, who, g, x, spell(live, true),
			plainJSON(t, live), data)
	}
	if g, x := plainJSON(t, got), plainJSON(t, want); g != x {
		t.Fatalf("%s by %q:\ngot  %s\nwant %s\nlive %s %s\nconfig %s", w.gvk, who, g, x, spell(live, true),
			plainJSON(t, live), data)
	}
	return want
}

// plainJSON returns the JSON of an object without its managedFields.
func plainJSON(t testing.TB, obj Object) string {
	t.Helper()
	obj = obj.DeepCopyObject().(Object)
	obj.SetManagedFields(nil)
	b, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestApplyLikeModel applies and updates random objects of every kind, and compares the result of
// each step with that of structured-merge-diff.
func TestApplyLikeModel(t *testing.T) {
	converter, ts := testConverter(), NewTypes()
	all := kinds(converter)
	worlds := make([]*world, len(all))
	for i, gvk := range all {
		worlds[i] = newWorld(t, ts, converter, gvk)
	}
	who := []string{"one", "two"}
	rapid.Check(t, func(rt *rapid.T) {
		w := worlds[rapid.IntRange(0, len(worlds)-1).Draw(rt, "kind")]
		f := &filler{Rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))}
		odds := 2 + f.IntN(4)
		obj := newObject(t, w.gvk)
		obj.GetObjectKind().SetGroupVersionKind(w.gvk)
		f.fill(reflect.ValueOf(obj).Elem(), odds)
		obj.SetUID("")
		var live Object
		if f.IntN(2) == 0 {
			live = w.update(t, "", "maker", newObject(t, w.gvk), obj)
		} else {
			live = w.apply(t, newObject(t, w.gvk), f.document(t, obj, 20), who[0], false)
		}
		for range 1 + f.IntN(5) {
			if live == nil {
				return
			}
			live = stored(t, w, live)
			next := live.DeepCopyObject().(Object)
			f.change(reflect.ValueOf(next).Elem(), odds)
			if f.IntN(4) == 0 {
				live = w.update(t, "", "maker", live, next)
				continue
			}
			if after := w.apply(t, live, f.document(t, next, 4+f.IntN(30)), who[f.IntN(2)], f.IntN(2) == 0); after != nil {
				live = after
			}
		}
	})
	known, asked := 0, 0
	for _, w := range worlds {
		known, asked = known+w.known, asked+w.asked
	}
	t.Logf("%d of %d writes handled", known, asked)
	if !testing.Short() && known*4 < asked { // the proportion is random if there are few inputs
		t.Errorf("only %d of %d writes were handled here", known, asked)
	}
}

// stored returns obj as it is after encoding and decoding.
func stored(t testing.TB, w *world, obj Object) Object {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	out := newObject(t, w.gvk)
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	out.SetUID(types.UID("u"))
	return out
}

// BenchmarkApply applies a configuration with a changed label to a pod that another manager
// created.
func BenchmarkApply(b *testing.B) {
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	w := newWorld(b, NewTypes(), testConverter(), gvk)
	live := w.update(b, "", "maker", newObject(b, gvk), parsePod(b)).(*corev1.Pod)
	live.UID = "u"
	pod := parsePod(b)
	pod.Labels["generation"] = "1"
	data, err := json.Marshal(pod)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var fields map[string]any
			if _, err := kjson.UnmarshalStrict(data, &fields); err != nil {
				b.Fatal(err)
			}
			c := Configuration{Fields: fields, Data: data, Manager: "bench", Force: true}
			if _, _, ok := w.keepers[""].Apply(live, c, metav1.Now()); !ok {
				b.Fatal("gave up")
			}
		}
	})
	b.Run("model", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			config := &unstructured.Unstructured{}
			if err := json.Unmarshal(data, &config.Object); err != nil {
				b.Fatal(err)
			}
			if _, err := w.models[""].Apply(live.DeepCopy(), config, "bench", true); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestForcedApply checks which fields a forced apply takes from another manager without falling
// back to structured-merge-diff: only those whose value is certain to change.
func TestForcedApply(t *testing.T) {
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	const config = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"}},"spec":{"priority":1,
		"hostNetwork":true,"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1"}}}]}}`
	for name, tc := range map[string]struct {
		old, new string // parts of the configuration
		taken    bool
	}{
		"label":                {`"a":"b"`, `"a":"c"`, true},
		"string in a list":     {`"image":"i"`, `"image":"j"`, true},
		"number":               {`"priority":1`, `"priority":2`, true},
		"empty string":         {`"image":"i"`, `"image":""`, false},
		"zero":                 {`"priority":1`, `"priority":0`, false},
		"boolean":              {`"hostNetwork":true`, `"hostNetwork":false`, false},
		"quantity, same value": {`"cpu":"1"`, `"cpu":"1000m"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, NewTypes(), testConverter(), gvk)
			live := stored(t, w, w.apply(t, newObject(t, gvk), []byte(config), "one", false))
			known := w.known
			w.apply(t, live, []byte(strings.Replace(config, tc.old, tc.new, 1)), "two", true)
			if taken := w.known > known; taken != tc.taken {
				t.Errorf("taken: %t, want %t", taken, tc.taken)
			}
		})
	}
}
