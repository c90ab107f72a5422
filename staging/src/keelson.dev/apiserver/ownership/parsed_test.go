// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// TestParsed parses texts from a buffer that it overwrites repeatedly, and compares the sets with
// those of parse. The cache must not keep more than parsedKept texts.
func TestParsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p parsed
		room := make([]byte, 1<<14)
		for range rapid.IntRange(1, 60).Draw(t, "texts") {
			var text strings.Builder
			for i := range rapid.SampledFrom([]int{1, 2, 3, 900}).Draw(t, "fields") {
				fmt.Fprintf(&text, `,"f:%c%03d":{}`, rapid.RuneFrom([]rune("abcd")).Draw(t, "name"), i)
			}
			said := "{" + text.String()[1:] + "}"
			n := copy(room, said)
			got, err := p.parse(unsafe.String(&room[0], n), nil)
			clear(room)
			want, wrong := parse(said, nil)
			if (err != nil) != (wrong != nil) || !equal(got, want) {
				t.Fatalf("%s: %v %v, want %v %v", said, got, err, want, wrong)
			}
			if len(p.last) > parsedKept {
				t.Fatalf("%d texts are kept", len(p.last))
			}
			for _, known := range p.last {
				if again, err := parse(known.text, nil); err != nil || !equal(again, known.fields) || len(known.text) > parsedMost {
					t.Fatalf("%s: %v, %v", known.text, known.fields, err)
				}
			}
		}
	})
}

// TestParsedKept checks that the cache keeps a text that is parsed more often than others.
func TestParsedKept(t *testing.T) {
	var p parsed
	text := func(i int) string { return fmt.Sprintf(`{"f:%d":{}}`, i) }
	for i := range 5 * parsedKept {
		for _, s := range []string{text(i + 1), text(0)} {
			if _, err := p.parse(s, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if allocs := testing.AllocsPerRun(10, func() { _, _ = p.parse(text(0), nil) }); p.last[0].text != text(0) ||
		allocs > 2 {
		t.Errorf("%q, %v allocations", p.last[0].text, allocs)
	}
}
