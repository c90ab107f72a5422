// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func open(t *testing.T, path string) (*Log, []string) {
	t.Helper()
	var got []string
	l, err := Open(path, func(b []byte) { got = append(got, string(b)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, got
}

// TestCut cuts off a log at each position, or changes one byte of it. All complete records before
// that position must be read, and records that are appended afterwards must be found.
func TestCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, _ := open(t, path)
	var want []string
	ends := []int64{0}
	for i := range 5 {
		want = append(want, fmt.Sprint("record ", i))
		if err := l.Append([]byte(want[i])); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, info.Size())
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		kept := 0
		for ends[kept+1] <= int64(at) {
			kept++
		}
		wrong := slices.Clone(whole)
		wrong[at] ^= 0xff
		for name, b := range map[string][]byte{"cut": whole[:at], "wrong": wrong} {
			broken := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(broken, b, 0o600); err != nil {
				t.Fatal(err)
			}
			l, got := open(t, broken)
			if !slices.Equal(got, want[:kept]) {
				t.Fatalf("%s at %d: %q, want %q", name, at, got, want[:kept])
			}
			if err := l.Append([]byte("new")); err != nil {
				t.Fatal(err)
			}
			if _, got := open(t, broken); !slices.Equal(got, append(slices.Clone(want[:kept]), "new")) {
				t.Fatalf("%s at %d, and added to: %q", name, at, got)
			}
		}
	}
}

func TestTooLarge(t *testing.T) {
	l, _ := open(t, filepath.Join(t.TempDir(), "log"))
	for _, size := range []int{0, MaxRecord + 1} {
		if l.Append(make([]byte, size)) == nil {
			t.Errorf("%d bytes are taken", size)
		}
	}
	if err := l.Append(make([]byte, MaxRecord)); err != nil {
		t.Error(err)
	}
}
