// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"testing"
)

// TestReencode stores an object without a field that now has a default. It checks that readers see
// the default, and that the next update stores it, even if the update changes nothing.
func TestReencode(t *testing.T) {
	onEach(t, func(t *testing.T, e *env) {
		ctx := patient(t)
		old, reencoded := []byte(`{"metadata":{"name":"a"}}`), []byte(`{"metadata":{"name":"a"},"data":"default"}`)
		s := New(Config{
			Backend: e.backend, Prefix: "old", GroupResource: things, Codec: thingCodec{}, Attrs: thingAttrs,
			Reencode: func(data []byte) ([]byte, bool) {
				if bytes.Equal(data, old) {
					return reencoded, true
				}
				return data, false
			},
		})
		put, err := e.kv.Put(ctx, "/registry/old/a", old, 0, 0)
		if err != nil || !put.OK {
			t.Fatal(put, err)
		}
		for _, when := range []string{"before the cache is there", "from the cache"} {
			r, err := s.Get(ctx, "a", "")
			if err != nil || !bytes.Equal(r.Bytes(), reencoded) {
				t.Fatalf("%s: %s, %v, want %s", when, r.Bytes(), err, reencoded)
			}
			if _, err := s.List(ctx, ListOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		same := func(_ context.Context, cur *Record) (Object, error) { return cur.Object() }
		for _, change := range []bool{true, false} {
			before, err := s.Get(ctx, "a", "")
			if err != nil {
				t.Fatal(err)
			}
			after, err := s.Update(ctx, "a", same)
			if err != nil || (after.Revision != before.Revision) != change {
				t.Fatalf("an update without a change: %+v, %v, want it written: %v", after, err, change)
			}
		}
		if item, _, err := e.kv.Get(ctx, "/registry/old/a"); err != nil || !bytes.Contains(item.Value, []byte("default")) {
			t.Errorf("stored is %s, %v", item.Value, err)
		}
	})
}
