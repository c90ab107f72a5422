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
	for range 2 { // the second call finds the link already there
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
		t.Error("the link of a removed log remains")
	}
}

// TestLinksOfLongNames checks that links for long pod names have the form that log collectors
// parse, POD_NAMESPACE_CONTAINER-ID.log, and that each run of a container has a different link.
func TestLinksOfLongNames(t *testing.T) {
	dir := t.TempDir()
	pod, namespace, container, id := strings.Repeat("p", 253), strings.Repeat("n", 63), strings.Repeat("c", 63),
		strings.Repeat("0", 63)
	for i, run := range []string{"1", "2", "3"} {
		path := filepath.Join(dir, run)
		if err := Link(dir, namespace, pod, container, id+run, path); err != nil {
			t.Fatal(err)
		}
		links, err := filepath.Glob(filepath.Join(dir, "*_"+namespace+"_"+container+"-"+id+run+".log"))
		if err != nil || len(links) != 1 {
			t.Fatalf("links of run %d: %q, %v", i, links, err)
		}
		if to, err := os.Readlink(links[0]); err != nil || to != path || !strings.HasPrefix(filepath.Base(links[0]), "ppp") {
			t.Errorf("%s leads to %s, %v", links[0], to, err)
		}
	}
}
