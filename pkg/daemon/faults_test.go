// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestFaultSingly: of a file whose pages come singly there are those that were read, and they are what the file has.
func TestFaultSingly(t *testing.T) {
	const pages = 32
	size := os.Getpagesize()
	content := make([]byte, pages*size)
	for i := range pages {
		content[i*size] = byte(i + 1)
	}
	path := filepath.Join(t.TempDir(), "mapped")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Sync(); err != nil { // pages that are being written do not come with others
		t.Fatal(err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, pages*size, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(data) }()
	from := uintptr(unsafe.Pointer(&data[0]))
	at := []addresses{{from, from + pages*uintptr(size)}}
	if data[3*size] != 4 || present(t, at[0]) < 2 {
		t.Fatalf("%d pages came with one: this kernel has no use for it", present(t, at[0]))
	}
	if err := faultSingly(at); err != nil {
		t.Fatal(err)
	}
	if err := drop(at); err != nil {
		t.Fatal(err)
	}
	if data[3*size] != 4 || data[9*size] != 10 {
		t.Errorf("pages 3 and 9 begin with %d and %d", data[3*size], data[9*size])
	}
	if n := present(t, at[0]); n != 2 {
		t.Errorf("%d pages are there, and two were read", n)
	}
	if err := faultSingly(at); err == nil { // which is how an error is told from success
		t.Error("a range was registered twice")
	}
}

// present is how many pages of a range the process has.
func present(t *testing.T, at addresses) (n int) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	size := uintptr(os.Getpagesize())
	entries := make([]byte, 8*(at.to-at.from)/size)
	if _, err := f.ReadAt(entries, int64(8*(at.from/size))); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(entries); i += 8 {
		n += int(binary.NativeEndian.Uint64(entries[i:]) >> 63)
	}
	return n
}
