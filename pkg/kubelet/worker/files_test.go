// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestSweepFiles checks that files of unknown pods are removed, except their volumes, and that
// files of known pods stay.
func TestSweepFiles(t *testing.T) {
	root := t.TempDir()
	write := func(pod string, files ...string) {
		t.Helper()
		for _, f := range files {
			path := filepath.Join(root, "pods", pod, f)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("known", "etc-hosts", "containers/main/log")
	write("left", "etc-hosts", "containers/main/log")
	write("mounted", "etc-hosts", "volumes/csi/v/file")
	if err := os.MkdirAll(filepath.Join(root, "pods", "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := SweepFiles(root, func(uid types.UID) bool { return uid != "known" }); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]bool{
		"known/etc-hosts": true, "known/containers/main/log": true, "left": false, "empty": false,
		"mounted/etc-hosts": false, "mounted/volumes/csi/v/file": true,
	} {
		if _, err := os.Lstat(filepath.Join(root, "pods", file)); (err == nil) != want {
			t.Errorf("%s: want %v, have %v", file, want, err)
		}
	}
	if err := SweepFiles(filepath.Join(root, "none"), func(types.UID) bool { return true }); err != nil {
		t.Errorf("no pods yet: %v", err)
	}
}
