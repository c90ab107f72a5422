// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestWritten passes texts in a buffer that it overwrites repeatedly, and checks that earlier
// results do not change.
func TestWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w written
		room := make([]byte, 2*parsedMost)
		given := map[string]string{}
		for range rapid.IntRange(1, 60).Draw(t, "texts") {
			text := strings.Repeat(rapid.StringN(1, 1, 4).Draw(t, "text"),
				rapid.SampledFrom([]int{1, 2, parsedMost / 4, parsedMost/4 + 1}).Draw(t, "times"))
			got := w.fields(room[:copy(room, text)])
			clear(room)
			if got.GetRawString() != text {
				t.Fatalf("fields are %q, want %q", got.GetRawString(), text)
			}
			got.SetRawString("changed by the caller")
			given[text] = text
			if len(w.last) > parsedKept {
				t.Fatalf("%d texts are kept", len(w.last))
			}
			for _, known := range w.last {
				if s := known.GetRawString(); given[s] != s || len(s) > parsedMost {
					t.Fatalf("%q is kept", s)
				}
			}
		}
	})
}

// TestWrittenKept checks that the cache keeps a text that is written more often than others.
func TestWrittenKept(t *testing.T) {
	var w written
	first := w.fields([]byte("often"))
	for i := range 5 * parsedKept {
		w.fields(fmt.Append(nil, i))
		if again := w.fields([]byte("often")); &again.GetRawBytes()[0] != &first.GetRawBytes()[0] {
			t.Fatal("the text is not shared")
		}
	}
}
