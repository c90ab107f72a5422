// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"testing"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/wire"
)

// TestRenew: what has its defaults stays as it is stored, of every kind; what has none, and
// what nobody knows any more, does not.
func TestRenew(t *testing.T) {
	t.Parallel()
	rows(t, func(t *testing.T, row *resource.Row) {
		renew := registry.Renew(row)
		if row.Ephemeral || renew == nil {
			return
		}
		randomObjects(t, row, 20, func(_ resource.Object, data []byte) {
			for range 2 { // what it decoded into is used again
				if got, changed := renew(data); changed {
					t.Errorf("renewed as %q\nstored was %q", got, data)
				}
			}
		})
		bare, ok := row.New().(wire.Message)
		if !ok {
			t.Fatalf("%T is no protobuf type", bare)
		}
		data, err := wire.NewHeader(row.GroupVersionKind().GroupVersion().String(), row.Kind).Marshal(bare)
		if err != nil {
			t.Fatal(err)
		}
		codec := registry.Codec(row)
		obj, err := codec.Decode(data, 0)
		if err != nil {
			t.Fatal(err)
		}
		want, err := codec.Encode(obj)
		if err != nil {
			t.Fatal(err)
		}
		if got, changed := renew(data); !bytes.Equal(got, want) || changed != !bytes.Equal(want, data) {
			t.Errorf("renewed as %q, %v, want %q", got, changed, want)
		}
	})
}
