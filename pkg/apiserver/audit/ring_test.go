// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestRing makes random calls of a ring, and compares its lines with a simple list of lines.
func TestRing(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		const maxBytes = 16 * 64 // at most 64 bytes in each file
		path := filepath.Join(dir, fmt.Sprint(n))
		r := newRing(path, maxBytes)
		var want []string // lines that the ring should have
		line := 0
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				line++
				l := fmt.Sprintf("%d%s\n", line, strings.Repeat("x", rapid.IntRange(0, 50).Draw(t, "length")))
				dropped, err := r.add([]byte(l))
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, l)[dropped:]
			},
			"take": func(t *rapid.T) {
				f, rows, err := r.oldest()
				if err != nil {
					t.Fatal(err)
				}
				if f == nil {
					if len(want) != 0 {
						t.Fatalf("empty, want %q", want)
					}
					return
				}
				for i, row := range rows {
					if string(row) != want[i] {
						t.Fatalf("row %d: %q, want %q", i, row, want[i])
					}
				}
				if err := r.remove(f); err != nil {
					t.Fatal(err)
				}
				want = want[len(rows):]
			},
			"kill": func(*rapid.T) {
				_ = r.close()
				r = newRing(path, maxBytes)
			},
			"": func(t *rapid.T) {
				size := 0
				for _, l := range want {
					size += len(l)
				}
				if r.size != int64(size) || r.size > maxBytes {
					t.Fatalf("size %d, want %d and at most %d", r.size, size, maxBytes)
				}
				if r.empty() && len(want) > 0 {
					t.Fatalf("empty, want %q", want)
				}
			},
		})
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRingIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	r := newRing(dir, 1<<20)
	if _, err := os.Stat(dir); err == nil {
		t.Error("a ring without lines has a directory")
	}
	if _, err := r.add([]byte("secret\n")); err != nil {
		t.Fatal(err)
	}
	modes := map[string]os.FileMode{dir: 0o700, r.files[0].path: 0o600}
	for path, want := range modes {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", path, info.Mode(), err, want)
		}
	}
	if _, err := newRing(dir, 0).add([]byte("x\n")); err == nil {
		t.Error("a ring without room took a line")
	}
	if names := slices.Collect(func(yield func(string) bool) {
		for _, f := range newRing(dir, 1<<20).files {
			yield(f.path)
		}
	}); len(names) != 1 {
		t.Errorf("found %q", names)
	}
}
