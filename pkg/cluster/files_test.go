// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson.dev/keelson/pkg/atomicfile"
)

func TestComplete(t *testing.T) {
	for name, tc := range map[string]struct {
		config Config
		ok     bool
	}{
		"defaults":          {Config{}, true},
		"short name":        {Config{Name: "a"}, true},
		"longest name":      {Config{Name: "a2345678901234567890"}, true},
		"too long a name":   {Config{Name: "a23456789012345678901"}, false},
		"capital":           {Config{Name: "A"}, false},
		"path in the name":  {Config{Name: "a/b"}, false},
		"dash at the end":   {Config{Name: "a-"}, false},
		"negative nodes":    {Config{Nodes: -1}, false},
		"too many nodes":    {Config{Nodes: maxNodes + 1}, false},
		"port out of range": {Config{Port: 65536}, false},
		"both families":     {Config{IPFamily: Dual}, true},
		"no family":         {Config{IPFamily: "ipv5"}, false},
		"release before":    {Config{EmulatedVersion: "1.36"}, true},
		"own release":       {Config{EmulatedVersion: "1.37"}, true},
		"unknown release":   {Config{EmulatedVersion: "1.35"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := tc.config
			if err := c.Complete(); (err == nil) != tc.ok {
				t.Fatalf("error %v, want ok %t", err, tc.ok)
			}
		})
	}
	c := Config{Kubeconfig: "file", DataDir: "dir"}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if !filepath.IsAbs(c.Kubeconfig) || !filepath.IsAbs(c.DataDir) {
		t.Errorf("relative paths stay: %q %q", c.Kubeconfig, c.DataDir)
	}
}

func TestNodeAddress(t *testing.T) {
	for index, want := range map[int]string{1: "10.50.0.11,fd50::11", 2: "10.50.0.12,fd50::12",
		maxNodes: "10.50.0.210,fd50::210"} {
		for family, of := range map[IPFamily]string{"": want[:strings.Index(want, ",")],
			IPv6: want[strings.Index(want, ",")+1:], Dual: want} {
			if got := strings.Join(Node{Index: index, IPFamily: family}.Addresses(), ","); got != of {
				t.Errorf("node %d has %s, want %s", index, got, of)
			}
		}
	}
}

// TestSettleFamily checks that a cluster keeps the IP family with which it was created, and that a
// different family is an error.
func TestSettleFamily(t *testing.T) {
	for _, tc := range []struct {
		has, want, get IPFamily
		ok             bool
	}{
		{"", "", "", true}, {"", IPv4, "", true}, {Dual, "", Dual, true}, {Dual, Dual, Dual, true},
		{"", Dual, Dual, false}, {Dual, IPv4, IPv4, false}, {IPv6, Dual, Dual, false},
	} {
		c := &Config{IPFamily: tc.want}
		if err := settleFamily(c, tc.has); (err == nil) != tc.ok || c.IPFamily != tc.get {
			t.Errorf("has %q, want %q: got %q, %v", tc.has, tc.want, c.IPFamily, err)
		}
	}
}

// TestStoreArchive checks that a packed store unpacks to the same files, and that files which are
// no snapshots are rejected.
func TestStoreArchive(t *testing.T) {
	dir := t.TempDir()
	store, file, back := filepath.Join(dir, "store"), filepath.Join(dir, "file"), filepath.Join(dir, "back")
	if err := atomicfile.WriteDurably(filepath.Join(store, "member", "snap", "db"), []byte("objects"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(packStore(store, file, nil), unpackStore(file, back)); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(back, "member", "snap", "db")); err != nil || string(b) != "objects" {
		t.Errorf("came back: %q, error %v", b, err)
	}
	other := filepath.Join(dir, "other")
	if err := atomicfile.WriteDurably(other, []byte("not an archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unpackStore(other, filepath.Join(dir, "x")); !errors.Is(err, errSnapshot) {
		t.Errorf("a text: %v", err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "empty"), 0o755),
		packStore(filepath.Join(dir, "empty"), other, nil)); err != nil {
		t.Fatal(err)
	}
	if err := unpackStore(other, filepath.Join(dir, "y")); !errors.Is(err, errSnapshot) {
		t.Errorf("an empty archive: %v", err)
	}
}

// TestCopyTree checks that copyTree hard-links ordinary files, and copies databases and symbolic
// links.
func TestCopyTree(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	for _, f := range []string{"blobs/one", "meta.db"} {
		if err := atomicfile.WriteDurably(filepath.Join(from, f), []byte(f), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("one", filepath.Join(from, "blobs", "link")); err != nil {
		t.Fatal(err)
	}
	if err := copyTree(from, to); err != nil {
		t.Fatal(err)
	}
	for file, shared := range map[string]bool{"blobs/one": true, "meta.db": false} {
		a, errA := os.Stat(filepath.Join(from, file))
		b, errB := os.Stat(filepath.Join(to, file))
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if os.SameFile(a, b) != shared || a.Mode() != b.Mode() {
			t.Errorf("%s: shared %t, mode %v and %v", file, os.SameFile(a, b), a.Mode(), b.Mode())
		}
	}
	if link, err := os.Readlink(filepath.Join(to, "blobs", "link")); err != nil || link != "one" {
		t.Errorf("link to %q, error %v", link, err)
	}
}

func TestTail(t *testing.T) {
	if got := tail([]byte(strings.Repeat("x\n", 3)+"a\nb\n"), 2); got != "a\nb" {
		t.Errorf("tail: %q", got)
	}
	if got := tail([]byte("a\n"), 2); got != "a" {
		t.Errorf("tail of little: %q", got)
	}
}
