// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// disk is a directory with files. In a path, a slash at the end means a directory, and "a>b" a link a
// to b.
type disk struct {
	*testing.T
	dir string
}

func newDisk(t *testing.T, paths ...string) disk {
	t.Helper()
	d := disk{t, t.TempDir()}
	for _, p := range paths {
		d.add(p)
	}
	return d
}

func (d disk) add(path string) {
	d.Helper()
	path, target, link := strings.Cut(path, ">")
	at := filepath.Join(d.dir, path)
	err := os.MkdirAll(filepath.Dir(at), 0o755)
	switch {
	case err != nil:
	case link:
		err = os.Symlink(target, at)
	case strings.HasSuffix(path, "/"):
		err = os.MkdirAll(at, 0o755)
	default:
		err = os.WriteFile(at, nil, 0o600)
	}
	if err != nil {
		d.Fatal(err)
	}
}

// paths returns all paths of the disk.
func (d disk) paths() []string {
	d.Helper()
	var out []string
	err := filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == d.dir {
			return err
		}
		rel, err := filepath.Rel(d.dir, path)
		if e.IsDir() {
			rel += "/"
		}
		out = append(out, rel)
		return err
	})
	if err != nil {
		d.Fatal(err)
	}
	return out
}

func TestRemoveTree(t *testing.T) {
	for name, c := range map[string]struct{ paths, want []string }{
		"missing":         {[]string{"beside"}, []string{"beside"}},
		"directory":       {[]string{"tree/a/b", "tree/c", "beside"}, []string{"beside"}},
		"link inside":     {[]string{"other/a", "tree/link>../other"}, []string{"other/", "other/a"}},
		"link to a disk":  {[]string{"other/a/b", "tree>other"}, []string{"other/", "tree"}},
		"link to nothing": {[]string{"tree>other"}, []string{"tree"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t, c.paths...)
			for range 2 {
				if err := removeTree(filepath.Join(d.dir, "tree")); err != nil {
					t.Error(err)
				}
			}
			if got := d.paths(); !slices.Equal(got, c.want) {
				t.Errorf("%q remain, want %q", got, c.want)
			}
		})
	}
}

func TestRemoveLinksInto(t *testing.T) {
	d := newDisk(t, "own/", "units/own>/usr/lib/keelson/current/a", "units/target.wants/own>/usr/lib/keelson/current/a",
		"units/other>/usr/lib/systemd/a", "units/similar>/usr/lib/keelson-other/a", "units/file")
	for _, dir := range []string{"units", "missing"} {
		if err := removeLinksInto(filepath.Join(d.dir, dir), "/usr/lib/keelson"); err != nil {
			t.Error(err)
		}
	}
	want := []string{"own/", "units/", "units/file", "units/other", "units/similar", "units/target.wants/"}
	if got := d.paths(); !slices.Equal(got, want) {
		t.Errorf("%q remain, want %q", got, want)
	}
}

func TestRemoveEmpty(t *testing.T) {
	d := newDisk(t, "empty/", "full/file", "link>empty")
	for _, path := range []string{"link", "empty", "full", "missing", "full/file/below"} {
		if err := removeEmpty(filepath.Join(d.dir, path)); err != nil {
			t.Error(err)
		}
	}
	if got, want := d.paths(), []string{"full/", "full/file", "link"}; !slices.Equal(got, want) {
		t.Errorf("%q remain, want %q", got, want)
	}
}

// TestShared checks that each shared directory comes before its parent, which is not empty before.
func TestShared(t *testing.T) {
	for i, dir := range shared() {
		if slices.Contains(shared()[:i], filepath.Dir(dir)) {
			t.Errorf("%s comes after its parent", dir)
		}
	}
}

func TestParseUnits(t *testing.T) {
	got := parseUnits(`keelson-kubelet.service    loaded    active     running      Keelson kubelet
keelson-proxy.service      loaded    activating auto-restart Keelson service proxy
keelson-scheduler.service  loaded    failed     failed       Keelson scheduler
keelson-apiserver.service  not-found active     running      keelson-apiserver.service
keelson-etcd.service       not-found inactive   dead         keelson-etcd.service

`)
	want := []string{"keelson-kubelet.service", "keelson-proxy.service", "keelson-scheduler.service",
		"keelson-apiserver.service"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
