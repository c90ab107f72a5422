// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const sums = "SHA256SUMS"

// file is a directory, a file or a symbolic link of a release.
type file struct {
	// Name is relative to the directory of the release.
	Name, Path string
	Size       int64
	Dir, Exec  bool
	// Link is the target of a symbolic link.
	Link string
}

// mode returns the permissions that the file gets. They do not depend on the umask of the build.
func (f file) mode() fs.FileMode {
	switch {
	case f.Link != "":
		return 0o777
	case f.Dir || f.Exec:
		return 0o755
	}
	return 0o644
}

var errKind = errors.New("neither a file, a directory nor a symbolic link")

// list returns what is below root, sorted by name. It skips files whose names begin with a dot: stamps
// of hack/tools.sh.
func list(root string) ([]file, error) {
	var out []file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root || d.Name()[0] == '.' {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f := file{Name: filepath.ToSlash(name), Path: path}
		switch info.Mode().Type() {
		case 0:
			f.Size, f.Exec = info.Size(), info.Mode()&0o100 != 0
		case fs.ModeDir:
			f.Dir = true
		case fs.ModeSymlink:
			if f.Link, err = os.Readlink(path); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s: %w", path, errKind)
		}
		out = append(out, f)
		return nil
	})
	return out, err
}

// archive writes a tar archive of files below the directory top.
func archive(w io.Writer, top string, files []file, at time.Time) error {
	out := tar.NewWriter(w)
	for _, f := range append([]file{{Dir: true}}, files...) {
		if err := add(out, top+"/"+f.Name, f, at); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return out.Close()
}

func add(w *tar.Writer, name string, f file, at time.Time) error {
	h := &tar.Header{
		Name: name, Mode: int64(f.mode()), ModTime: at, Uname: "root", Gname: "root",
		Typeflag: tar.TypeReg, Size: f.Size, Format: tar.FormatPAX,
	}
	switch {
	case f.Dir:
		h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(name, "/")+"/"
	case f.Link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
	}
	if err := w.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	in, err := os.Open(f.Path)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(w, in)
	return err
}

// writeSums writes the checksums of all files below root into the file SHA256SUMS.
func writeSums(root string) error {
	files, err := list(root)
	if err != nil {
		return err
	}
	var out strings.Builder
	for _, f := range files {
		if f.Dir || f.Link != "" || f.Name == sums {
			continue
		}
		sum, err := sha256File(f.Path)
		if err != nil {
			return err
		}
		out.WriteString(sum + "  " + f.Name + "\n")
	}
	return os.WriteFile(filepath.Join(root, sums), []byte(out.String()), 0o644)
}

func sha256File(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
