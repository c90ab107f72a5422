// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"slices"

	"github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	v1 "k8s.io/api/core/v1"
)

// SELinux tells the labels that this node gives to files of containers; nil if it has no SELinux.
func SELinux() func(*v1.SELinuxOptions) (string, error) {
	if !selinux.GetEnabled() {
		return nil
	}
	return func(o *v1.SELinuxOptions) (string, error) {
		process, file, err := label.InitLabels(labelOptions(o))
		if err != nil {
			return "", fmt.Errorf("SELinux label: %w", err)
		}
		selinux.ReleaseLabel(process) // it is for the runtime to reserve
		return file, nil
	}
}

// labelOptions are the options in the words of the library; what is not told is the node's default.
func labelOptions(o *v1.SELinuxOptions) []string {
	var out []string
	for _, part := range [][2]string{{"user", o.User}, {"role", o.Role}, {"type", o.Type}, {"level", o.Level}} {
		if part[1] != "" {
			out = append(out, part[0]+":"+part[1])
		}
	}
	return out
}

// labels are the SELinux labels that the containers with a volume want its files to have, if it
// may be mounted with one: if it is of one pod alone, which does not want to have the files
// labelled one by one. There are none while somebody's is not known: the runtime chooses the
// level of who does not tell it.
func (m *Manager) labels(pod *v1.Pod, volume string, pv *v1.PersistentVolume) ([]string, error) {
	if m.cfg.Label == nil || !slices.Equal(pv.Spec.AccessModes, []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}) {
		return nil, nil
	}
	sc := pod.Spec.SecurityContext
	if sc != nil && sc.SELinuxChangePolicy != nil && *sc.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive {
		return nil, nil
	}
	var out []string
	for _, o := range optionsOf(pod, volume) {
		if o == nil || o.Level == "" {
			return nil, nil
		}
		l, err := m.cfg.Label(o)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// optionsOf are the SELinux options of the containers that have a volume; nil for one that has none.
func optionsOf(pod *v1.Pod, volume string) []*v1.SELinuxOptions {
	var out []*v1.SELinuxOptions
	add := func(mounts []v1.VolumeMount, own *v1.SecurityContext) {
		if !slices.ContainsFunc(mounts, func(m v1.VolumeMount) bool { return m.Name == volume }) {
			return
		}
		switch {
		case own != nil && own.SELinuxOptions != nil:
			out = append(out, own.SELinuxOptions)
		case pod.Spec.SecurityContext != nil:
			out = append(out, pod.Spec.SecurityContext.SELinuxOptions)
		default:
			out = append(out, nil)
		}
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			add(list[i].VolumeMounts, list[i].SecurityContext)
		}
	}
	return out
}
