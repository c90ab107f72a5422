// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package beneath

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	check(t, os.WriteFile(filepath.Join(outside, "file"), []byte("outside"), 0o600))
	check(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	check(t, os.WriteFile(filepath.Join(dir, "sub", "file"), []byte("inside"), 0o600))
	for name, target := range map[string]string{
		"link": "sub/file", "dirlink": "sub", "absolute": filepath.Join(outside, "file"),
		"up":     "../" + filepath.Base(outside) + "/file",
		"outdir": outside, "magic": "/proc/self/root", "loop": "loop", "inside": filepath.Join(dir, "sub", "file"),
	} {
		check(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	check(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for name, c := range map[string]struct {
		followed, exact bool // whether Open opens the file, and whether OpenNoLinks opens it
	}{
		"sub/file": {true, true}, "sub/../sub/file": {true, true}, "link": {true, false}, "dirlink/file": {true, false},
		"absolute": {}, "up": {}, "outdir/file": {}, "magic" + outside + "/file": {}, "loop": {}, "missing": {}, "pipe": {},
		"../" + filepath.Base(outside) + "/file": {}, outside + "/file": {}, "inside": {},
	} {
		for what, open := range map[string]struct {
			f    func(dir, name string) (*os.File, error)
			want bool
		}{"Open": {Open, c.followed}, "OpenNoLinks": {OpenNoLinks, c.exact}} {
			f, err := open.f(dir, name)
			if (err == nil) != open.want {
				t.Errorf("%s(%q): %v", what, name, err)
			}
			if err != nil {
				continue
			}
			if text, err := io.ReadAll(f); err != nil || string(text) != "inside" {
				t.Errorf("%s(%q): %q, %v", what, name, text, err)
			}
			check(t, f.Close())
		}
	}
	if _, err := Open(dir, "missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := Open(dir, "pipe"); !errors.Is(err, ErrSpecial) {
		t.Errorf("pipe: %v", err)
	}
}

func TestResolve(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	check(t, os.MkdirAll(filepath.Join(dir, "sub", "deep"), 0o700))
	check(t, os.Symlink(filepath.Join(dir, "sub"), filepath.Join(outside, "back")))
	for name, target := range map[string]string{
		"absolute": filepath.Join(dir, "sub"), "relative": "sub/deep", "chain": "absolute",
		"back": filepath.Join(outside, "back"),
		"out":  outside, "up": "..", "loop": filepath.Join(dir, "loop"),
		"dangling": filepath.Join(dir, "nowhere"), "self": ".",
	} {
		check(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	alias := filepath.Join(outside, "alias")
	check(t, os.Symlink(dir, alias))
	for _, from := range []string{dir, alias} {
		for name, want := range map[string]string{
			"sub/deep": "sub/deep", "absolute/deep": "sub/deep", "relative": "sub/deep", "chain": "sub",
			"back/deep": "sub/deep", "self": ".",
			"out": "", "up": "", "loop": "", "dangling": "", "nowhere": "",
		} {
			got, err := Resolve(from, name)
			if got != want || (err == nil) != (want != "") {
				t.Errorf("Resolve(%q, %q): %q, %v; want %q", from, name, got, err, want)
			}
		}
	}
	if _, err := Resolve(dir, "out"); !errors.Is(err, unix.EXDEV) {
		t.Errorf("out: %v", err)
	}
	if _, err := Resolve(dir, "dangling"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("dangling: %v", err)
	}
}
