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

// podsDir returns the directory that contains one directory per pod.
func podsDir(root string) string { return filepath.Join(root, "pods") }

// removeFiles removes the files that the worker created for a pod, and the pod's directory if it is
// empty then. The volume manager removes the pod's volumes from the directory.
func removeFiles(root string, uid types.UID) error {
	dir := filepath.Join(podsDir(root), string(uid))
	for _, name := range []string{"etc-hosts", "containers"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove files: %w", err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return nil // the directory does not exist, or still contains volumes
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove pod directory: %w", err)
	}
	return nil
}

// SweepFiles removes the files of all pods for which unknown returns true. A pod leaves such files
// behind if the kubelet is killed after it removed the pod from the runtime and before it removed
// the files.
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
