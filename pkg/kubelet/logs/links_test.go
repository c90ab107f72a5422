// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestLinks(t *testing.T) {
	root, dir := t.TempDir(), filepath.Join(t.TempDir(), "containers")
	k := &Keeper{cfg: Config{Root: root, Links: dir}}
	path := filepath.Join(root, "ns_p_u", "c", "0.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also when it is there already
		if err := Link(dir, "ns", "p", "c", "id", path); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "p_ns_c-id.log")
	there := func() bool { _, err := os.Lstat(link); return err == nil }
	if b, err := os.ReadFile(link); err != nil || string(b) != "text" {
		t.Errorf("%q, %v", b, err)
	}
	sweep := func() {
		t.Helper()
		if err := k.Sweep(func(types.UID) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	if sweep(); !there() {
		t.Error("the link of a log that is there was removed")
	}
	if err := os.Rename(path, path+".20300101-000000"); err != nil {
		t.Fatal(err)
	}
	if sweep(); !there() {
		t.Error("the link of a log that is being renamed was removed")
	}
	if err := os.Remove(path + ".20300101-000000"); err != nil {
		t.Fatal(err)
	}
	if sweep(); there() {
		t.Error("the link of a log that is gone stays")
	}
	if err := Link(dir, "ns", strings.Repeat("p", 253), "c", "id", path); err != nil {
		t.Errorf("long name: %v", err)
	}
}
