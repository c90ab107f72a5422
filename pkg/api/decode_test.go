// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"reflect"
	"testing"

	kjson "sigs.k8s.io/json"

	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/typedjson"
)

// TestDecode encodes random objects of every kind and decodes the bytes in two ways: as the server
// decodes request bodies, and with the decoder of the Kubernetes library. The results must be
// equal.
func TestDecode(t *testing.T) {
	t.Parallel()
	rows(t, func(t *testing.T, row *resource.Row) {
		fill := filler(row)
		for range 20 {
			in := row.New()
			fill.Fill(in)
			doc, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			want, got := row.New(), row.New()
			wantOdd, wantErr := kjson.UnmarshalStrict(doc, want)
			gotOdd, gotErr := typedjson.Unmarshal(doc, got, true)
			if wantErr != nil || len(wantOdd) > 0 || gotErr != nil || len(gotOdd) > 0 {
				t.Fatalf("library: %v %v; here: %v %v", wantOdd, wantErr, gotOdd, gotErr)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("got %+v\nwant %+v\nof %s", got, want, doc)
			}
			if !typedjson.Read(doc, row.New()) {
				t.Errorf("left to the library: %s", doc)
			}
		}
	})
}
