// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"math/rand/v2"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// excludes returns structured-merge-diff's filter that removes the paths in s.
func excludes(gvk schema.GroupVersionKind, s set) map[fieldpath.APIVersion]fieldpath.Filter {
	if len(s) == 0 {
		return nil
	}
	paths := fieldpath.NewSet()
	var walk func(fieldpath.Path, set)
	walk = func(at fieldpath.Path, s set) {
		for _, e := range s {
			here := append(at.Copy(), fieldpath.FieldNameElement(e.element[2:]))
			if e.member {
				paths.Insert(here)
			}
			walk(here, e.below)
		}
	}
	walk(nil, s)
	return fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(gvk.GroupVersion().String()): paths,
	})
}

// TestUpdateLikeModel updates random objects of every kind in the name of several managers, and
// compares the result of each step with that of structured-merge-diff.
func TestUpdateLikeModel(t *testing.T) {
	converter, ts := testConverter(), NewTypes()
	all := kinds(converter)
	worlds := make([]*world, len(all))
	for i, gvk := range all {
		worlds[i] = newWorld(t, ts, converter, gvk)
	}
	who := []string{"kubectl", "kubelet", ""}
	subs := []string{"", "", "status"}
	rapid.Check(t, func(rt *rapid.T) {
		w := worlds[rapid.IntRange(0, len(worlds)-1).Draw(rt, "kind")]
		f := &filler{Rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))}
		odds := 1 + f.IntN(4)
		obj := newObject(t, w.gvk)
		f.fill(reflect.ValueOf(obj).Elem(), odds)
		obj.SetUID("")
		live := w.update(t, "", "maker", newObject(t, w.gvk), obj)
		live.SetUID(types.UID("u"))
		for range f.IntN(5) {
			next := live.DeepCopyObject().(Object)
			f.change(reflect.ValueOf(next).Elem(), odds)
			next.SetManagedFields(live.GetManagedFields())
			switch f.IntN(8) {
			case 0:
				next.SetManagedFields(nil)
			case 1:
				next.SetManagedFields([]metav1.ManagedFieldsEntry{})
			}
			live = w.update(t, subs[f.IntN(len(subs))], who[f.IntN(len(who))], live, next)
		}
	})
	known, asked := 0, 0
	for _, w := range worlds {
		known, asked = known+w.known, asked+w.asked
	}
	t.Logf("%d kinds; %d of %d updates handled", len(all), known, asked)
	if !testing.Short() && known*2 < asked { // the proportion is random if there are few inputs
		t.Errorf("only %d of %d updates were handled here", known, asked)
	}
}

// TestKindsCompile logs the kinds that the package does not support. No kind may make it panic.
func TestKindsCompile(t *testing.T) {
	converter, ts := testConverter(), NewTypes()
	for _, gvk := range kinds(converter) {
		k := New(Config{Types: ts, Converter: converter, Kind: gvk, New: func() Object { return newObject(t, gvk) }})
		if k.kind() == nil {
			t.Logf("%s is not compiled: %v", gvk, k.err)
		}
	}
}
