// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// TestIndent indents documents piece by piece and compares the results with json.Indent of the
// whole document.
func TestIndent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc, err := json.Marshal(anyJSON(3).Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "spaced") {
			doc = bytes.ReplaceAll(doc, []byte(`,"`), []byte(" ,\n\t\""))
		}
		var in indenter
		var got []byte
		for rest := doc; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			got, rest = in.append(got, rest[:n]), rest[n:]
		}
		if want := indent(doc); !bytes.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", doc, got, want)
		}
	})
}

func anyJSON(depth int) *rapid.Generator[any] {
	texts := rapid.SampledFrom([]string{"", "a", `"`, `\`, `\"`, "{}", "[1, 2]", "a:b,c", "\n", "é\u2028"})
	leaf := rapid.OneOf(texts.AsAny(), rapid.Int().AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil))
	if depth == 0 {
		return leaf
	}
	inner := anyJSON(depth - 1)
	return rapid.OneOf(leaf, rapid.SliceOfN(inner, 0, 3).AsAny(), rapid.MapOfN(texts, inner, 0, 3).AsAny())
}
