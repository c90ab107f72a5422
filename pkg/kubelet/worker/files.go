// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
)

// podsDir is where, below the kubelet's root, each pod has a directory.
func podsDir(root string) string { return filepath.Join(root, "pods") }

// removeFiles removes what a pod's containers had in the pod's directory, and the
// directory when nothing else is in it: what volumes left is theirs to remove.
func removeFiles(root string, uid types.UID) error {
	dir := filepath.Join(podsDir(root), string(uid))
	for _, name := range []string{"etc-hosts", "containers"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove files: %w", err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return nil // it went, or stays until the rest is gone
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove pod directory: %w", err)
	}
	return nil
}

// SweepFiles removes the files of unknown pods: those whose kubelet was killed when
// the runtime had nothing of them any more, and the files were still there.
func SweepFiles(root string, unknown func(types.UID) bool) error {
	entries, err := os.ReadDir(podsDir(root))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list pods' directories: %w", err)
	}
	for _, e := range entries {
		if uid := types.UID(e.Name()); unknown(uid) {
			if err := removeFiles(root, uid); err != nil {
				return fmt.Errorf("pod %s: %w", uid, err)
			}
		}
	}
	return nil
}
