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

// TestReencode checks that objects that are stored in the current version are left as they are if
// they have all defaults, and that other stored objects are encoded in the current version, with
// their defaults.
func TestReencode(t *testing.T) {
	t.Parallel()
	rows(t, func(t *testing.T, row *resource.Row) {
		reencode := registry.Reencode(row)
		if row.Ephemeral || reencode == nil {
			return
		}
		randomObjects(t, row, 20, func(_ resource.Object, data []byte) {
			if row.DefaultsChanged {
				data, _ = reencode(data) // the random object may lack defaults
			}
			if got, changed := reencode(data); changed {
				t.Errorf("encoded again as %q\nstored was %q", got, data)
			}
		})
		bare, ok := row.New().(wire.Message)
		if !ok {
			t.Fatalf("%T is no protobuf type", bare)
		}
		// These bytes have the form of the current version, but their header names only the kind
		// and no API version.
		data, err := wire.NewHeader("", row.Kind).Marshal(bare)
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
		if got, changed := reencode(data); !changed || !bytes.Equal(got, want) {
			t.Errorf("encoded again as %q, %v, want %q", got, changed, want)
		}
	})
}
