// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/transcode"
	"keelson.dev/apiserver/wire"
)

// randomObjects generates n random objects of the kind that row declares, stores each of them, and
// calls check with the object and its stored bytes.
func randomObjects(t *testing.T, row *resource.Row, n int, check func(obj resource.Object, data []byte)) {
	fill, codec := filler(row), registry.Codec(row)
	for i := range n {
		obj := row.New()
		if i > 0 {
			fill.Fill(obj)
		}
		obj.GetObjectKind().SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(""))
		if row.Default != nil {
			row.Default(obj)
		}
		data, err := codec.Encode(obj)
		if err != nil {
			t.Fatal(err)
		}
		if obj, err = codec.Decode(data, int64(i)); err != nil {
			t.Fatal(err)
		}
		// Decode and encode a second time, because some defaults depend on other defaults.
		if data, err = codec.Encode(obj); err != nil {
			t.Fatal(err)
		}
		if obj, err = codec.Decode(data, int64(i)); err != nil {
			t.Fatal(err)
		}
		check(obj, data)
	}
}

// TestTranscode compares JSON that is written directly from stored bytes with JSON that is encoded
// from the object.
func TestTranscode(t *testing.T) {
	t.Parallel()
	types := transcode.NewTypes()
	rows(t, func(t *testing.T, row *resource.Row) {
		if row.Ephemeral || row.Computed || row.Codec != nil {
			return
		}
		program, err := types.Program(row.New())
		if row.Resource == "statefulsets" { // in a stateful set, each claim template has a kind of its own
			if err == nil {
				t.Error("a kind within an object is in no bytes")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		randomObjects(t, row, 30, func(obj resource.Object, data []byte) {
			want, err := json.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			e, err := wire.Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			got, ok := program.Append([]byte("x"), e.Raw, obj.GetResourceVersion())
			if !ok {
				refused++
				return
			}
			if string(got) != "x"+string(want) {
				t.Fatal(cmp.Diff(string(want), string(got[1:])))
			}
			var parts struct {
				Metadata json.RawMessage `json:"metadata"`
			}
			if err := json.Unmarshal(want, &parts); err != nil {
				t.Fatal(err)
			}
			if got, ok := program.AppendMetadata(nil, e.Raw, obj.GetResourceVersion()); !ok ||
				string(got) != string(parts.Metadata) {
				t.Fatalf("metadata %s, want %s", got, parts.Metadata)
			}
		})
		// Some signing requests have empty lists in maps. The transcoder does not write such
		// objects and leaves them to the codec.
		if refused > 0 && row.Resource != "certificatesigningrequests" {
			t.Errorf("%d objects refused", refused)
		}
	})
}

// TestPaths computes cells and selectable fields twice: from only those parts of an object that the
// kind's row of the kind table lists as needed, and from the whole object. The results must be
// equal.
func TestPaths(t *testing.T) {
	t.Parallel()
	types := transcode.NewTypes()
	rows(t, func(t *testing.T, row *resource.Row) {
		if row.Ephemeral || row.Computed || row.Codec != nil {
			return
		}
		cells, attrs, peek := registry.Parts(row, types, row.CellPaths...)(), registry.Attrs(row), registry.Peek(row, types)
		randomObjects(t, row, 30, func(obj resource.Object, data []byte) {
			if row.CellPaths != nil {
				part, ok := cells(data)
				if !ok {
					t.Fatal("not decoded")
				}
				if diff := cmp.Diff(row.Cells(obj, env), row.Cells(part, env)); diff != "" {
					t.Error(diff)
				}
				if row.RowConditions != nil {
					if diff := cmp.Diff(row.RowConditions(obj), row.RowConditions(part)); diff != "" {
						t.Error(diff)
					}
				}
			}
			if peek == nil || row.Resource == "statefulsets" {
				return
			}
			got, ok := peek(data)
			if want := attrs(obj); !ok || !maps.Equal(got.Labels, want.Labels) || !maps.Equal(got.Fields, want.Fields) {
				t.Errorf("selected by %v, want %v", got, want)
			}
		})
	})
}
