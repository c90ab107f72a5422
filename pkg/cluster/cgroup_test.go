// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"keelson.dev/keelson/pkg/atomicfile"
)

// TestFindCgroups checks machines with cgroup version 1, with version 2, with both, and without
// cgroups.
func TestFindCgroups(t *testing.T) {
	const v1, v2 = "cgroup.procs", "cgroup.controllers"
	for name, tc := range map[string]struct {
		files  []string
		mounts []string
		hybrid string
		err    error
	}{
		"version 1": {files: []string{"cpu/" + v1, "memory/" + v1}, mounts: []string{"cpu", "memory"}},
		"version 2": {files: []string{v1, v2}, mounts: []string{"."}},
		"hybrid": {files: []string{"cpu/" + v1, "unified/" + v1, "unified/" + v2}, mounts: []string{"cpu"},
			hybrid: "unified"},
		"none":        {files: []string{"other/file"}, err: errCgroups},
		"only hybrid": {files: []string{"unified/" + v1, "unified/" + v2}, err: errCgroups},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, f := range tc.files {
				if err := atomicfile.WriteDurably(filepath.Join(root, f), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			// A link to a hierarchy must not count as another hierarchy.
			if err := os.Symlink("cpu", filepath.Join(root, "alias")); err != nil {
				t.Fatal(err)
			}
			c, err := findCgroups(root)
			if !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if err != nil {
				return
			}
			var mounts []string
			for _, m := range c.mounts {
				mounts = append(mounts, rel(t, root, m))
			}
			if !slices.Equal(mounts, tc.mounts) {
				t.Errorf("mounts %v, want %v", mounts, tc.mounts)
			}
			if hybrid := c.hybrid; hybrid != "" && rel(t, root, hybrid) != tc.hybrid || hybrid == "" && tc.hybrid != "" {
				t.Errorf("hybrid %q, want %q", hybrid, tc.hybrid)
			}
			if used := len(c.used()); used != len(tc.mounts)+min(len(tc.hybrid), 1) {
				t.Errorf("%d hierarchies used", used)
			}
		})
	}
}

func rel(t *testing.T, root, path string) string {
	t.Helper()
	r, err := filepath.Rel(root, path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
