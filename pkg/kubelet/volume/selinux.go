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

// SELinux returns a function that computes the SELinux label for a container's files. It returns
// nil on a node without SELinux.
func SELinux() func(*v1.SELinuxOptions) (string, error) {
	if !selinux.GetEnabled() {
		return nil
	}
	return func(o *v1.SELinuxOptions) (string, error) {
		process, file, err := label.InitLabels(labelOptions(o))
		if err != nil {
			return "", fmt.Errorf("SELinux label: %w", err)
		}
		selinux.ReleaseLabel(process) // only the file label is needed here; the runtime reserves the process label
		return file, nil
	}
}

// labelOptions converts the options to the strings of the selinux library. For an option that is
// not set, the library uses the node's default.
func labelOptions(o *v1.SELinuxOptions) []string {
	var out []string
	for _, part := range [][2]string{{"user", o.User}, {"role", o.Role}, {"type", o.Type}, {"level", o.Level}} {
		if part[1] != "" {
			out = append(out, part[0]+":"+part[1])
		}
	}
	return out
}

// labels returns the SELinux labels that the volume's files must have for the containers that mount
// the volume, without duplicates. As in Kubernetes, containers without SELinux options do not
// count. labels returns none if the volume must not be mounted with a label: the node has no
// SELinux, the pod's seLinuxChangePolicy is Recursive, or a container's options specify no level.
// In the last case the runtime chooses the level, so the label is unknown.
func (m *Manager) labels(pod *v1.Pod, volume string) ([]string, error) {
	if m.cfg.Label == nil {
		return nil, nil
	}
	sc := pod.Spec.SecurityContext
	if sc != nil && sc.SELinuxChangePolicy != nil && *sc.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive {
		return nil, nil
	}
	var out []string
	for _, o := range optionsOf(pod, volume) {
		if o.Level == "" {
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

// optionsOf returns the SELinux options of the containers that mount a volume: the container's own
// or the pod's.
func optionsOf(pod *v1.Pod, volume string) []*v1.SELinuxOptions {
	var out []*v1.SELinuxOptions
	add := func(mounts []v1.VolumeMount, own *v1.SecurityContext) {
		if !slices.ContainsFunc(mounts, func(m v1.VolumeMount) bool { return m.Name == volume }) {
			return
		}
		switch {
		case own != nil && own.SELinuxOptions != nil:
			out = append(out, own.SELinuxOptions)
		case pod.Spec.SecurityContext != nil && pod.Spec.SecurityContext.SELinuxOptions != nil:
			out = append(out, pod.Spec.SecurityContext.SELinuxOptions)
		}
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			add(list[i].VolumeMounts, list[i].SecurityContext)
		}
	}
	return out
}
