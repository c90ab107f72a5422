// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// write makes files below a new directory. A name with a slash at its end is a directory, and "->" in
// a content makes a symbolic link.
func write(t *testing.T, mode os.FileMode, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(content, "->"); link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(content), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

var at = time.Unix(1700000000, 0)

// packed returns the archive of the files below root.
func packed(t *testing.T, root string) []byte {
	t.Helper()
	files, err := list(root)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := archive(&out, "top", files, at); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestArchiveIsReproducible checks that the bytes of an archive depend neither on the order and the
// time in which its files were made, nor on the umask.
func TestArchiveIsReproducible(t *testing.T) {
	files := map[string]string{"b/ctl": "program", "b/kubectl": "->ctl", "a": "text", "c/d/e": ""}
	first := packed(t, write(t, 0o755, files))
	root := write(t, 0o700, files)
	if err := os.Chtimes(filepath.Join(root, "a"), at, at); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, packed(t, root)) {
		t.Error("the same files gave different archives")
	}
	if bytes.Equal(first, packed(t, write(t, 0o644, files))) {
		t.Error("the archive does not show which files are programs")
	}
}

func TestArchive(t *testing.T) {
	long := strings.Repeat("directory/", 20) + "LICENSE" // does not fit into a plain header
	root := write(t, 0o644, map[string]string{"b": "text", "a/link": "->../b", long: "licence", "a/.stamp": ""})
	in := tar.NewReader(bytes.NewReader(packed(t, root)))
	var names []string
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(at) {
			t.Errorf("%s: user %d, group %d, time %v", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		names = append(names, h.Name)
	}
	if len(names) != 25 || names[0] != "top/" || names[2] != "top/a/link" || names[3] != "top/b" ||
		names[24] != "top/"+long {
		t.Errorf("names %q", names)
	}
}

func TestListRefusesPipes(t *testing.T) {
	root := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := list(root); !errors.Is(err, errKind) {
		t.Errorf("error %v", err)
	}
}

func TestSums(t *testing.T) {
	root := write(t, 0o644, map[string]string{"a/b": "text", "link": "->a/b", sums: "of an earlier release"})
	if err := writeSums(root); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, sums))
	if err != nil {
		t.Fatal(err)
	}
	const want = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1  a/b\n"
	if string(got) != want {
		t.Errorf("have %q, want %q", got, want)
	}
}
