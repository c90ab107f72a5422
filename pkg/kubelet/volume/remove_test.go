// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRemoveTree removes directories with more levels than the process may have open descriptors,
// and checks that removeTree does not follow symbolic links.
func TestRemoveTree(t *testing.T) {
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	outside, dir := t.TempDir(), filepath.Join(t.TempDir(), "volumes")
	check(os.WriteFile(filepath.Join(outside, "host"), nil, 0o600))
	check(os.Mkdir(dir, 0o755))
	check(os.WriteFile(filepath.Join(dir, ".removed-1"), nil, 0o600))
	check(os.Symlink(outside, filepath.Join(dir, "link")))
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	check(err)
	for i := range 2000 {
		for _, name := range []string{"a", "b" + strconv.Itoa(i)} {
			check(unix.Mkdirat(at, name, 0o755))
		}
		check(unix.Symlinkat(outside, at, "link"+strconv.Itoa(i)))
		next, err := unix.Openat(at, "a", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		check(err)
		check(unix.Close(at))
		at = next
	}
	check(unix.Close(at))
	var before unix.Rlimit
	check(unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	limited := before
	limited.Cur = maxOpenLevels + 100
	check(unix.Setrlimit(unix.RLIMIT_NOFILE, &limited))
	err = removeTree(dir)
	check(unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	check(err)
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(outside, "host")); err != nil {
		t.Error(err)
	}
	check(removeTree(dir)) // repeated, to check that a missing directory is no error
}
