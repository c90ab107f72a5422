// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// eachContainer calls visit with the parts of each container of the pod that can refer to volumes.
func eachContainer(pod *v1.Pod, visit func(mounts []v1.VolumeMount, devices []v1.VolumeDevice, env []v1.EnvVar)) {
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			visit(containers[i].VolumeMounts, containers[i].VolumeDevices, containers[i].Env)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		c := &pod.Spec.EphemeralContainers[i].EphemeralContainerCommon
		visit(c.VolumeMounts, c.VolumeDevices, c.Env)
	}
}

// usedVolumes returns the volumes that containers use: by a mount, as a device, or as a source of
// environment variables. As in Kubernetes, other volumes are not set up, so that errors in them
// have no effect.
func usedVolumes(pod *v1.Pod) []*v1.Volume {
	used := map[string]bool{}
	eachContainer(pod, func(mounts []v1.VolumeMount, devices []v1.VolumeDevice, env []v1.EnvVar) {
		for i := range mounts {
			used[mounts[i].Name] = true
		}
		for i := range devices {
			used[devices[i].Name] = true
		}
		for i := range env {
			if f := env[i].ValueFrom; f != nil && f.FileKeyRef != nil {
				used[f.FileKeyRef.VolumeName] = true
			}
		}
	})
	var out []*v1.Volume
	for i := range pod.Spec.Volumes {
		if used[pod.Spec.Volumes[i].Name] {
			out = append(out, &pod.Spec.Volumes[i])
		}
	}
	return out
}

// isBlock reports whether containers use a volume as a block device.
func isBlock(pv *v1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// checkUse returns an error if containers use a file system volume as a device, or mount a block
// volume.
func checkUse(pod *v1.Pod, name string, pv *v1.PersistentVolume) error {
	mounted, device := false, false
	eachContainer(pod, func(mounts []v1.VolumeMount, devices []v1.VolumeDevice, _ []v1.EnvVar) {
		mounted = mounted || slices.ContainsFunc(mounts, func(m v1.VolumeMount) bool { return m.Name == name })
		device = device || slices.ContainsFunc(devices, func(d v1.VolumeDevice) bool { return d.Name == name })
	})
	switch block := isBlock(pv); {
	case mounted && block:
		return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeMounts", name, v1.PersistentVolumeBlock)
	case device && !block:
		return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeDevices", name,
			v1.PersistentVolumeFilesystem)
	}
	return nil
}
