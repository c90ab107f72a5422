// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "0.log"), make([]byte, 10000), 0o600); err != nil {
		t.Fatal(err)
	}
	if bytes, inodes, err := Files(dir); err != nil || bytes < 10000 || inodes != 1 {
		t.Errorf("%d bytes in %d files, %v", bytes, inodes, err)
	}
	if bytes, inodes, err := Files(filepath.Join(dir, "none")); err != nil || bytes != 0 || inodes != 0 {
		t.Errorf("missing directory: %d bytes in %d files, %v", bytes, inodes, err)
	}
}

func TestGiven(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"etc-hosts", "containers/c/0", "containers/c/1", "volumes/large"} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if bytes, inodes := KubeletFiles(dir); bytes < 3<<20 || bytes > 4<<20 || inodes != 3 {
		t.Errorf("%d bytes in %d files", bytes, inodes)
	}
}
