// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
)

// The names of the volume plugins. With "/" replaced by "~" they are also directory names.
const (
	pluginEmptyDir    = "kubernetes.io/empty-dir"
	pluginConfigMap   = "kubernetes.io/configmap"
	pluginSecret      = "kubernetes.io/secret"
	pluginProjected   = "kubernetes.io/projected"
	pluginDownwardAPI = "kubernetes.io/downward-api"
	pluginLocal       = "kubernetes.io/local-volume"
	pluginNFS         = "kubernetes.io/nfs"
	pluginCSI         = "kubernetes.io/csi"
	pluginHostPath    = "kubernetes.io/host-path"
	pluginImage       = "kubernetes.io/image"
	pluginNone        = "N/A" // value of the label of metrics if the plugin is unknown
)

// localPlugins are the plugins of volumes whose data belongs to one pod and is deleted with it.
var localPlugins = [...]string{pluginEmptyDir, pluginConfigMap, pluginSecret, pluginProjected, pluginDownwardAPI}

// make sets up one volume. It is idempotent: a volume that is already set up stays as it is.
func (m *Manager) make(ctx context.Context, pod *v1.Pod, v *v1.Volume) (prepared, error) {
	switch s := &v.VolumeSource; {
	case s.PersistentVolumeClaim != nil:
		return m.makeClaim(ctx, pod, v, s.PersistentVolumeClaim.ReadOnly)
	case s.Ephemeral != nil:
		return m.makeClaim(ctx, pod, v, false)
	}
	return m.mount(pluginOf(&v.VolumeSource), false, func() (prepared, error) { return m.makeUnclaimed(ctx, pod, v) })
}

// makeUnclaimed sets up a volume that is defined in the pod itself.
func (m *Manager) makeUnclaimed(ctx context.Context, pod *v1.Pod, v *v1.Volume) (prepared, error) {
	switch s := &v.VolumeSource; {
	case s.EmptyDir != nil:
		return m.makeEmptyDir(pod, v.Name, s.EmptyDir)
	case hasContent(v):
		return m.makeContent(ctx, pod, v)
	case s.HostPath != nil:
		return makeHostPath(s.HostPath, false)
	case s.Image != nil:
		return prepared{readOnly: true}, nil
	case s.NFS != nil:
		return m.makeNFS(pod, v.Name, s.NFS, nil, s.NFS.ReadOnly)
	case s.CSI != nil:
		return m.makeInline(ctx, pod, v.Name, s.CSI)
	case s.GitRepo != nil:
		return prepared{}, errors.New("git-repo volume plugin has been disabled")
	}
	return prepared{}, errors.New("no volume plugin matched")
}

// hasContent reports whether the files of the volume come from API objects.
func hasContent(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil
}

// makeContent creates a volume whose files come from API objects. It reads the objects first and
// mounts nothing until all of them exist.
func (m *Manager) makeContent(ctx context.Context, pod *v1.Pod, v *v1.Volume) (prepared, error) {
	files, err := m.collect(ctx, pod, v)
	if err != nil {
		return prepared{}, err
	}
	plugin, memory := pluginConfigMap, false
	switch {
	case v.Secret != nil:
		plugin, memory = pluginSecret, true
	case v.Projected != nil:
		plugin, memory = pluginProjected, true
	case v.DownwardAPI != nil:
		plugin, memory = pluginDownwardAPI, true
	}
	dir := m.volumeDir(pod.UID, plugin, v.Name)
	if err := makeDir(dir, emptyDirMode); err != nil {
		return prepared{}, err
	}
	if memory {
		if err := m.mountTmpfs(dir, m.memorySize(pod, nil)); err != nil {
			return prepared{}, err
		}
	}
	if err := makeNestedMountpoints(pod, v.Name, dir); err != nil {
		return prepared{}, err
	}
	if err := m.writeFiles(pod, dir, files); err != nil {
		return prepared{}, err
	}
	return prepared{path: dir, readOnly: true, managed: true}, nil
}

// writeContent writes the current content of an existing volume whose files come from API objects.
func (m *Manager) writeContent(ctx context.Context, pod *v1.Pod, v *v1.Volume, dir string) error {
	files, err := m.collect(ctx, pod, v)
	if err != nil {
		return err
	}
	return m.writeFiles(pod, dir, files)
}

func (m *Manager) writeFiles(pod *v1.Pod, dir string, files map[string]file) error {
	w := writer{dir: dir, clock: m.cfg.Clock}
	if group := fsGroup(pod); group != nil {
		w.own = func() error { return changeGroup(dir, *group, true) }
	}
	return w.write(files)
}
