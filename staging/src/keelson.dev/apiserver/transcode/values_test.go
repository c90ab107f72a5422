// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package transcode_test

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"keelson.dev/apiserver/transcode"
)

// TestAppendString compares AppendString with encoding/json for every byte, and for random
// sequences of plain, escaped and invalid bytes.
func TestAppendString(t *testing.T) {
	check := func(t rapid.TB, text []byte) {
		want, err := json.Marshal(string(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := transcode.AppendString([]byte("before"), text); string(got) != "before"+string(want) {
			t.Fatalf("%q: %s, want %s", text, got, want)
		}
	}
	for c := range 256 {
		check(t, []byte{byte(c)})
	}
	sorts := rapid.OneOf(
		rapid.SampledFrom([]string{`"`, `\`, "<", ">", "&", "\x00", "\x1f", "\b", "\f", "\n", "\r", "\t",
			"\x7f", "\u2028", "\u2029", "é", "\xff", "\xe2\x80"}),
		rapid.StringMatching("[a-z ]{0,5}"))
	rapid.Check(t, func(t *rapid.T) {
		var text []byte
		for range rapid.IntRange(0, 6).Draw(t, "parts") {
			text = append(text, sorts.Draw(t, "part")...)
		}
		check(t, text)
	})
}
