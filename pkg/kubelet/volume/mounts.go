// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"log/slog"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/env"
)

// Mounts are the prepared volumes of one pod. A Mounts value never changes.
type Mounts struct {
	podDir string
	ready  map[string]prepared
	log    *slog.Logger
}

// Options are the inputs, other than the container's spec, that determine its mounts.
type Options struct {
	// Env is the container's environment, for subPathExpr.
	Env []*runtimeapi.KeyValue
	// Images are the pulled images of the pod's image volumes, by volume name.
	Images map[string]*runtimeapi.ImageSpec
	// UIDMappings and GIDMappings are the ID mappings of the pod's user namespace. They are empty
	// if the pod has none.
	UIDMappings, GIDMappings []*runtimeapi.IDMapping
	// RecursiveReadOnly reports whether the runtime handler supports recursive read-only mounts.
	RecursiveReadOnly bool
}

// ForContainer returns the mounts of a container of the pod, in the order of its volumeMounts.
func (ms Mounts) ForContainer(pod *v1.Pod, c *v1.Container, o Options) ([]*runtimeapi.Mount, error) {
	out := make([]*runtimeapi.Mount, 0, len(c.VolumeMounts))
	for i := range c.VolumeMounts {
		m, err := ms.mount(c, i, o)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func (ms Mounts) mount(c *v1.Container, index int, o Options) (*runtimeapi.Mount, error) {
	vm := &c.VolumeMounts[index]
	p, ok := ms.ready[vm.Name]
	image := o.Images[vm.Name]
	if !ok || p.path == "" && image == nil {
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", vm.Name, c.Name)
	}
	path, err := subPathOf(vm, o.Env)
	if err != nil {
		return nil, err
	}
	propagation, err := propagationOf(vm.MountPropagation)
	if err != nil {
		return nil, err
	}
	recursive, err := recursiveReadOnly(vm, o.RecursiveReadOnly)
	if err != nil {
		return nil, fmt.Errorf("failed to resolve recursive read-only mode: %w", err)
	}
	m := &runtimeapi.Mount{
		ContainerPath:     filepath.Join("/", vm.MountPath),
		HostPath:          p.path,
		Readonly:          vm.ReadOnly || p.readOnly,
		RecursiveReadOnly: recursive,
		Propagation:       propagation,
		SelinuxRelabel:    p.managed && !p.labelled,
		UidMappings:       o.UIDMappings,
		GidMappings:       o.GIDMappings,
	}
	switch {
	case image != nil:
		m.HostPath, m.Image, m.ImageSubPath = "", image, path
	case path != "":
		m.HostPath, err = ms.bindSubPath(p, vm, c.Name, index, path)
	}
	return m, err
}

// bindSubPath bind-mounts a subPath of a volume and returns the mount point. It logs the details of
// an error but does not return them, because they could disclose file names of the node to a user.
func (ms Mounts) bindSubPath(p prepared, vm *v1.VolumeMount, container string, index int, path string) (string, error) {
	s := subpath{podDir: ms.podDir, volume: vm.Name, dir: p.path, path: path, container: container, index: index}
	at, err := s.bind()
	if err != nil {
		ms.log.Error("Failed to bind-mount a subPath", "podDir", ms.podDir, "volume", vm.Name, "container",
			container, "err", err)
		return "", fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q", vm.Name, container)
	}
	return at, nil
}

func subPathOf(vm *v1.VolumeMount, vars []*runtimeapi.KeyValue) (string, error) {
	path := vm.SubPath
	if vm.SubPathExpr != "" {
		var err error
		if path, err = env.ExpandStrict(vm.SubPathExpr, vars); err != nil {
			return "", err
		}
	}
	if filepath.IsAbs(path) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", path)
	}
	if err := checkBacksteps(path); err != nil {
		return "", fmt.Errorf("unable to provision SubPath `%s`: %w", path, err)
	}
	return path, nil
}

func propagationOf(mode *v1.MountPropagationMode) (runtimeapi.MountPropagation, error) {
	if mode == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch *mode {
	case v1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case v1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case v1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, fmt.Errorf("invalid MountPropagation mode: %q", *mode)
}

func recursiveReadOnly(vm *v1.VolumeMount, supported bool) (bool, error) {
	if vm.RecursiveReadOnly == nil || *vm.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !vm.ReadOnly {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", vm.Name)
	}
	if p := vm.MountPropagation; p != nil && *p != v1.MountPropagationNone {
		return false, fmt.Errorf(
			"volume %q requested recursive read-only mode, but it is not compatible with propagation %q", vm.Name, *p)
	}
	switch *vm.RecursiveReadOnly {
	case v1.RecursiveReadOnlyIfPossible:
		return supported, nil
	case v1.RecursiveReadOnlyEnabled:
		if !supported {
			return false, fmt.Errorf(
				"volume %q requested recursive read-only mode, but it is not supported by the runtime", vm.Name)
		}
		return true, nil
	}
	return false, fmt.Errorf("unknown recursive read-only mode %q", *vm.RecursiveReadOnly)
}

// Path returns the path on the node of a volume that is set up. It returns false for other volumes.
func (ms Mounts) Path(volume string) (string, bool) {
	p, ok := ms.ready[volume]
	return p.path, ok && p.path != ""
}

// Devices returns the paths on the node of the devices in the container's volumeDevices.
func (ms Mounts) Devices(c *v1.Container) ([]*runtimeapi.Device, error) {
	var out []*runtimeapi.Device
	for _, d := range c.VolumeDevices {
		if !filepath.IsAbs(d.DevicePath) {
			return nil, fmt.Errorf("error DevicePath `%s` must be an absolute path", d.DevicePath)
		}
		p, ok := ms.ready[d.Name]
		if !ok || p.device == "" {
			return nil, fmt.Errorf("cannot find volume %q to pass into container %q", d.Name, c.Name)
		}
		permissions := "mrw"
		if p.readOnly {
			permissions = "r"
		}
		out = append(out, &runtimeapi.Device{ContainerPath: d.DevicePath, HostPath: p.device, Permissions: permissions})
	}
	return out, nil
}
