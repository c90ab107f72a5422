// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// makeNestedMountpoints creates those directories in a volume at which containers mount other
// volumes. The runtime cannot create them, because the volume is read-only for containers.
func makeNestedMountpoints(pod *v1.Pod, name, dir string) error {
	paths := nestedMountpoints(pod, name)
	if len(paths) == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("unable to create nested volume mountpoints: %w", err)
	}
	defer func() { _ = root.Close() }() // an error of Close can be ignored for a directory: no written data depends on it
	for _, path := range paths {
		if err := root.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("unable to create nested volume mountpoints: %w", err)
		}
	}
	return nil
}

// nestedMountpoints returns the paths in a volume at which containers mount other volumes. Mount
// points inside those other volumes are left out.
func nestedMountpoints(pod *v1.Pod, name string) []string {
	var out []string
	add := func(mounts []v1.VolumeMount) {
		for _, own := range mounts {
			if own.Name == name {
				out = append(out, directlyBelow(filepath.Join("/", own.MountPath), mounts)...)
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		add(pod.Spec.InitContainers[i].VolumeMounts)
	}
	for i := range pod.Spec.Containers {
		add(pod.Spec.Containers[i].VolumeMounts)
	}
	for i := range pod.Spec.EphemeralContainers {
		add(pod.Spec.EphemeralContainers[i].VolumeMounts)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// directlyBelow returns the mount paths below base, relative to base. It leaves out a path that is
// below another one of these mount paths.
func directlyBelow(base string, mounts []v1.VolumeMount) []string {
	var below []string
	for _, m := range mounts {
		if rel, ok := strings.CutPrefix(filepath.Join("/", m.MountPath), strings.TrimSuffix(base, "/")+"/"); ok && rel != "" {
			below = append(below, rel)
		}
	}
	return slices.DeleteFunc(slices.Clone(below), func(p string) bool {
		return slices.ContainsFunc(below, func(q string) bool { return strings.HasPrefix(p, q+"/") })
	})
}
