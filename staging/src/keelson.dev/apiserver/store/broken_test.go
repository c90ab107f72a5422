// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// TestBrokenObjectIsSeen checks that lists contain an object whose stored bytes cannot be decoded,
// and that decoding it returns an error to the reader.
func TestBrokenObjectIsSeen(t *testing.T) {
	onEach(t, func(t *testing.T, e *env) {
		ctx := patient(t)
		if _, err := e.store.Create(ctx, "ns/good", newThing("ns", "good"), 0); err != nil {
			t.Fatal(err)
		}
		if put, err := e.kv.Put(ctx, "/registry/things/ns/bad", []byte("{"), 0, 0); err != nil || !put.OK {
			t.Fatal(put, err)
		}
		for name, tc := range map[string]struct {
			predicate Predicate
			want      int
		}{
			"all":    {Predicate{}, 2},
			"labels": {Predicate{Labels: labels.SelectorFromSet(labels.Set{"a": "b"})}, 1},
			"fields": {Predicate{Fields: fields.OneTermEqualSelector("metadata.name", "good")}, 1},
			"both": {
				Predicate{Labels: labels.Everything(), Fields: fields.OneTermEqualSelector("spec.phase", "x")}, 1},
			"other namespace": {Predicate{Namespace: "other"}, 0},
		} {
			page, err := e.store.List(ctx, ListOptions{Predicate: tc.predicate})
			if err != nil || len(page.Records) != tc.want {
				t.Errorf("%s: %d records, %v, want %d", name, len(page.Records), err, tc.want)
			}
		}
	})
}
