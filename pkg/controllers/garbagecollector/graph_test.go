// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

var testKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// model is the expected content of the graph: the existing objects by UID.
type model map[types.UID]*metav1.PartialObjectMetadata

func (m model) dependents(uid types.UID) []types.UID {
	var out []types.UID
	for id, o := range m {
		if slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == uid }) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

func (m model) named() map[types.UID]bool {
	out := map[types.UID]bool{}
	for id, o := range m {
		out[id] = true
		for _, r := range o.OwnerReferences {
			out[r.UID] = true
		}
	}
	return out
}

func drawObject(t *rapid.T, uids []types.UID) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	o.UID = rapid.SampledFrom(uids).Draw(t, "uid")
	for _, owner := range rapid.SliceOfNDistinct(rapid.SampledFrom(uids), 0, 3, rapid.ID).Draw(t, "owners") {
		if owner != o.UID {
			block := rapid.Bool().Draw(t, "block")
			o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{UID: owner, BlockOwnerDeletion: &block})
		}
	}
	return o
}

// TestGraphAgainstModel checks that the graph has all dependents of an object after objects were
// created and deleted in random order. Some owners are never created.
func TestGraphAgainstModel(t *testing.T) {
	uids := []types.UID{"a", "b", "c", "d", "e"}
	rapid.Check(t, func(t *rapid.T) {
		g, m := newGraph(), model{}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				o := drawObject(t, uids)
				had := m[o.UID] != nil
				look := g.set(identity{testKind, "ns", string(o.UID), o.UID}, o)
				m[o.UID] = o
				if !had && len(o.OwnerReferences) > 0 && !slices.Contains(look, o.UID) {
					t.Fatalf("new dependent %s is not queued", o.UID)
				}
			},
			"remove": func(t *rapid.T) {
				uid := rapid.SampledFrom(uids).Draw(t, "uid")
				look := g.remove(uid)
				delete(m, uid)
				for _, d := range m.dependents(uid) {
					if !slices.Contains(look, d) {
						t.Fatalf("%s was deleted and its dependent %s is not queued", uid, d)
					}
				}
			},
			"": func(t *rapid.T) {
				for _, uid := range uids {
					var got []types.UID
					for _, d := range g.dependents(uid) {
						got = append(got, d.uid)
					}
					slices.Sort(got)
					if want := m.dependents(uid); !slices.Equal(got, want) {
						t.Fatalf("dependents of %s: %v, want %v", uid, got, want)
					}
					if v, ok := g.snapshot(uid); ok && v.guessed != (m[uid] == nil) {
						t.Fatalf("%s is guessed: %v", uid, v.guessed)
					}
				}
				if got, want := slices.Sorted(maps.Keys(g.byUID)), slices.Sorted(maps.Keys(m.named())); !slices.Equal(got, want) {
					t.Fatalf("vertices %v, want %v", got, want)
				}
			},
		})
	})
}

func TestUnsettled(t *testing.T) {
	g := newGraph()
	child := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "child",
		OwnerReferences: []metav1.OwnerReference{{UID: "owner"}}}}
	g.set(identity{testKind, "ns", "child", "child"}, child)
	if got := g.unsettled(); !slices.Equal(got, []types.UID{"child"}) {
		t.Errorf("unsettled: %v", got)
	}
	g.set(identity{testKind, "ns", "owner", "owner"},
		&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "owner"}})
	if got := g.unsettled(); len(got) > 0 {
		t.Errorf("unsettled with the owner there: %v", got)
	}
}
