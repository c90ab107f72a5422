// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"keelson.dev/api/clock"
)

// TestListStats checks which objects a list counts, for each source of objects.
func TestListStats(t *testing.T) {
	e := run(t, newMemory(t), clock.Real())
	var first string
	for i := range 6 {
		obj := newThing("ns", fmt.Sprint("a", i))
		obj.Node = fmt.Sprint("n", i%2)
		r, err := e.store.Create(patient(t), "ns/"+obj.Name, obj, 0)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = formatRevision(r.Revision)
		}
	}
	byField := func(field, value string) Predicate {
		return Predicate{Namespace: "ns", Fields: fields.OneTermEqualSelector(field, value)}
	}
	if _, err := e.store.List(patient(t), ListOptions{}); err != nil { // waits until the cache is loaded
		t.Fatal(err)
	}
	before := e.store.Stats()
	for _, opts := range []ListOptions{
		{}, // 6 objects
		{Limit: 2},
		{Predicate: byField("metadata.name", "a1")}, // only this object is read
		{Predicate: byField("spec.nodeName", "n1")}, // the index has 3 of the objects
		{Predicate: byField("spec.nodeName", "none")},
	} {
		if _, err := e.store.List(patient(t), opts); err != nil {
			t.Fatal(err)
		}
	}
	e.store.b.compacted.Store(1 << 40) // so that the list of a past revision reads the storage
	if _, err := e.store.List(patient(t), ListOptions{
		Predicate: byField("spec.nodeName", "n0"), ResourceVersion: first, Match: metav1.ResourceVersionMatchExact,
	}); err != nil {
		t.Fatal(err)
	}
	after := e.store.Stats()
	for name, tt := range map[string]struct{ before, after, want ListStats }{
		"cache":   {before.CachedLists, after.CachedLists, ListStats{Lists: 3, Fetched: 9, Returned: 9}},
		"index":   {before.IndexedLists, after.IndexedLists, ListStats{Lists: 2, Fetched: 3, Returned: 3}},
		"storage": {before.StoredLists, after.StoredLists, ListStats{Lists: 1, Fetched: 1, Evaluated: 1, Returned: 1}},
	} {
		got := tt.after
		got.Lists -= tt.before.Lists
		got.Fetched -= tt.before.Fetched
		got.Evaluated -= tt.before.Evaluated
		got.Returned -= tt.before.Returned
		if got != tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
	if before.StoredLists.Lists == 0 {
		t.Error("loading the cache counted no list")
	}
}
