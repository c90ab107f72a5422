// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A small heap may grow by some megabytes, more while it is busy, a large one by
// a part of itself.
func TestHeapPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 512, 8 << 20: 512, 20 << 20: 212, 40 << 20: 112, 320 << 20: 25, 4 << 30: 13} {
		if got := heapPercent(live, false); got != want {
			t.Errorf("%d bytes in use: %d, want %d", live, got, want)
		}
	}
	for live, want := range map[uint64]int{8 << 20: 1500, 64 << 20: 100, 128 << 20: 43, 320 << 20: 25} {
		if got := heapPercent(live, true); got != want {
			t.Errorf("busy with %d bytes in use: %d, want %d", live, got, want)
		}
	}
}

// A file that has been dropped is read again, and files that are not there do no harm.
func TestDropFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	mem, err := unix.Mmap(int(f.Fd()), 0, 7, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mem) }()
	if string(mem) != "content" {
		t.Fatal(string(mem))
	}
	if err := dropFile(path); err != nil || string(mem) != "content" {
		t.Error(string(mem), err)
	}
	if err := dropMapped([]string{path, path + "-none"}, 0); err != nil {
		t.Error(err)
	}
	if n, err := residentFiles(); err != nil || n == 0 {
		t.Error(n, err)
	}
}
