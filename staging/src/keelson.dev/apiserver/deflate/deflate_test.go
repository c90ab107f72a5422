// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package deflate_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"

	"pgregory.net/rapid"

	"keelson.dev/apiserver/deflate"
)

// TestStream sends pieces and writes in random order, and compares what the standard library reads
// with the texts that were sent.
func TestStream(t *testing.T) {
	pool := deflate.NewPool()
	text := rapid.Custom(func(t *rapid.T) []byte {
		unit := rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "unit")
		return bytes.Repeat(unit, rapid.IntRange(0, 200).Draw(t, "times"))
	})
	rapid.Check(t, func(t *rapid.T) {
		var out bytes.Buffer
		var want []byte
		s := pool.Stream(&out)
		for range rapid.IntRange(0, 6).Draw(t, "parts") {
			part := text.Draw(t, "text")
			want = append(want, part...)
			if !rapid.Bool().Draw(t, "piece") {
				if _, err := s.Write(part); err != nil {
					t.Fatal(err)
				}
				continue
			}
			p := pool.Piece(part)
			for range 2 { // send the same piece twice
				if err := s.Piece(p); err != nil {
					t.Fatal(err)
				}
			}
			want = append(want, part...)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := gzip.NewReader(&out)
		if err != nil {
			t.Fatal(err)
		}
		r.Multistream(false) // the response must be one gzip stream
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, %v, want %d", len(got), err, len(want))
		}
		if out.Len() > 0 {
			t.Fatalf("%d bytes after the end", out.Len())
		}
	})
}

func BenchmarkPiece(b *testing.B) {
	pool := deflate.NewPool()
	text := bytes.Repeat([]byte(`{"metadata":{"name":"a"},"spec":{"containers":[]}},`), 10_000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		pool.Piece(text)
	}
}
