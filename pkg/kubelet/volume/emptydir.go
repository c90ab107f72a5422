// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson.dev/api/quantity"
)

// emptyDirMode permits all users of the pod's containers to write.
const emptyDirMode fs.FileMode = 0o777

// makeEmptyDir creates an emptyDir volume on the node's disk or in memory.
func (m *Manager) makeEmptyDir(pod *v1.Pod, name string, s *v1.EmptyDirVolumeSource) (prepared, error) {
	dir := m.volumeDir(pod.UID, pluginEmptyDir, name)
	p := prepared{path: dir, managed: true}
	marker := filepath.Join(m.podDir(pod.UID), "plugins", strings.ReplaceAll(pluginEmptyDir, "/", "~"), name, "ready")
	if m.emptyDirReady(dir, marker, s.Medium) {
		return p, nil
	}
	if err := makeDir(dir, emptyDirMode); err != nil {
		return prepared{}, err
	}
	var err error
	switch {
	case s.Medium == v1.StorageMediumDefault:
	case s.Medium == v1.StorageMediumMemory:
		err = m.mountTmpfs(dir, m.memorySize(pod, s.SizeLimit))
	case s.Medium == v1.StorageMediumHugePages ||
		strings.HasPrefix(string(s.Medium), string(v1.StorageMediumHugePagesPrefix)):
		err = mountHugePages(pod, dir, s.Medium)
	default:
		err = fmt.Errorf("unknown storage medium %q", s.Medium)
	}
	if err != nil {
		return prepared{}, err
	}
	if group := fsGroup(pod); group != nil {
		if err := changeGroup(dir, *group, false); err != nil {
			return prepared{}, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(marker), 0o750); err != nil {
		return prepared{}, fmt.Errorf("mark volume ready: %w", err)
	}
	if err := os.WriteFile(marker, nil, 0o640); err != nil {
		return prepared{}, fmt.Errorf("mark volume ready: %w", err)
	}
	return p, nil
}

// emptyDirReady reports whether the volume is complete: its marker file exists, and so does its
// directory or mount. The kubelet does not set the mode and owner of a complete volume again,
// because containers may have changed them.
func (m *Manager) emptyDirReady(dir, marker string, medium v1.StorageMedium) bool {
	if _, err := os.Lstat(marker); err != nil {
		return false
	}
	if medium != v1.StorageMediumDefault {
		mounted, err := isMount(dir)
		return err == nil && mounted
	}
	_, err := os.Lstat(dir)
	return err == nil
}

// makeDir creates a directory with exactly the given mode. It does nothing if the directory exists.
func makeDir(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return fmt.Errorf("make volume: %w", err)
	}
	switch err := os.Mkdir(dir, mode); {
	case errors.Is(err, fs.ErrExist):
	case err != nil:
		return fmt.Errorf("make volume: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("make volume: %w", err)
	}
	if info.Mode().Perm() == mode.Perm() {
		return nil
	}
	if err := os.Chmod(dir, mode); err != nil { // sets the mode independently of the umask
		return fmt.Errorf("make volume: %w", err)
	}
	return nil
}

// memorySize returns the size limit of a memory volume in bytes: the smallest of the node's
// allocatable memory, the pod's memory limit and the volume's own limit. 0 means no limit.
func (m *Manager) memorySize(pod *v1.Pod, limit *resource.Quantity) int64 {
	allocatable := m.allocatable()[v1.ResourceMemory]
	size := allocatable.Value()
	lower := func(v int64) {
		if v > 0 && (size == 0 || v < size) {
			size = v
		}
	}
	lower(podMemoryLimit(pod))
	if limit != nil {
		lower(quantity.Value(*limit))
	}
	return size
}

// podMemoryLimit returns the memory limit of the pod's cgroup, or 0 if it has none.
func podMemoryLimit(pod *v1.Pod) int64 {
	if r := pod.Spec.Resources; r != nil {
		if q, ok := r.Limits[v1.ResourceMemory]; ok {
			return quantity.Value(q)
		}
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Resources.Limits.Memory().IsZero() {
			return 0
		}
	}
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	return quantity.Value(*limits.Memory())
}

// hugePageSize returns the page size of a volume of huge pages. It is the size in the volume's
// medium, or else the only page size that the pod requests.
func hugePageSize(pod *v1.Pod, medium v1.StorageMedium) (resource.Quantity, error) {
	var want, found resource.Quantity
	if named, ok := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); ok {
		var err error
		if want, err = resource.ParseQuantity(named); err != nil {
			return want, fmt.Errorf("medium %s: %w", medium, err)
		}
	}
	for _, size := range requestedPageSizes(pod) {
		switch {
		case !want.IsZero() && size.Cmp(want) != 0:
		case !found.IsZero() && size.Cmp(found) != 0:
			return found, fmt.Errorf("medium: %s can't be used if container requests multiple huge page sizes", medium)
		default:
			found = size
		}
	}
	if found.IsZero() {
		return found, fmt.Errorf(
			"medium %s: hugePages storage requested, but there is no resource request for huge pages", medium)
	}
	return found, nil
}

func requestedPageSizes(pod *v1.Pod) []resource.Quantity {
	var lists []v1.ResourceList
	if pod.Spec.Resources != nil {
		lists = append(lists, pod.Spec.Resources.Requests)
	}
	for _, containers := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			lists = append(lists, containers[i].Resources.Requests)
		}
	}
	var out []resource.Quantity
	for _, list := range lists {
		for name := range list {
			if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
				if q, err := resource.ParseQuantity(size); err == nil {
					out = append(out, q)
				}
			}
		}
	}
	return out
}
