// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/server"
)

var _ server.Pods = (*Kubelet)(nil)

// Pods implements server.Pods.
func (k *Kubelet) Pods() []*v1.Pod {
	list := k.sources.all()
	for i := range list {
		list[i] = k.present(list[i])
	}
	return list
}

// present is a pod with its newest status, which the API may not have yet.
func (k *Kubelet) present(pod *v1.Pod) *v1.Pod {
	s, ok := k.status.Get(pod.UID)
	if !ok {
		return pod
	}
	pod = pod.DeepCopy()
	pod.Status = s
	return pod
}

// Pod implements server.Pods.
func (k *Kubelet) Pod(namespace, name string) (*v1.Pod, bool) {
	pod := k.sources.named(namespace, name)
	if pod == nil {
		return nil, false
	}
	return k.present(pod), true
}

// RunningPods implements server.Pods.
func (k *Kubelet) RunningPods(ctx context.Context) ([]*v1.Pod, error) {
	digest, err := k.runtime.client.Digest(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the runtime: %w", err)
	}
	var out []*v1.Pod
	for uid := range digest {
		pod, err := k.runtime.client.Pod(ctx, uid)
		if err != nil {
			return nil, fmt.Errorf("pod %s of the runtime: %w", uid, err)
		}
		if pod.Running() {
			out = append(out, pod.Bare())
		}
	}
	return out, nil
}

// ContainerLog implements server.Pods.
func (k *Kubelet) ContainerLog(ctx context.Context, pod *v1.Pod, container string, previous bool) (server.LogSource, error) {
	st := statusOf(pod, container)
	if st == nil {
		return server.LogSource{}, fmt.Errorf("container %q in pod %q is not available", container, pod.Name)
	}
	seen, err := k.runtime.client.Pod(ctx, pod.UID)
	if err != nil {
		return server.LogSource{}, fmt.Errorf("container runtime: %s", cri.Message(err))
	}
	run := seen.Latest(container)
	if previous {
		run = seen.Run(container, 1)
		// A container that waits to be started again has its last run as its newest.
		if latest := seen.Latest(container); st.State.Waiting != nil && latest != nil && latest.State == cri.Exited {
			run = latest
		}
		if run == nil {
			return server.LogSource{}, fmt.Errorf("previous terminated container %q in pod %q not found", container, pod.Name)
		}
	}
	if run == nil {
		return server.LogSource{}, notStarted(pod, container, st)
	}
	id := run.ID
	return server.LogSource{Path: run.LogPath, Running: func(ctx context.Context) (bool, error) {
		seen, err := k.runtime.client.Pod(ctx, pod.UID)
		if err != nil {
			return false, err
		}
		for i := range seen.Containers {
			if seen.Containers[i].ID == id {
				return seen.Containers[i].State == cri.Running, nil
			}
		}
		return false, nil
	}}, nil
}

// notStarted says in Kubernetes' words why there is no log.
func notStarted(pod *v1.Pod, container string, st *v1.ContainerStatus) error {
	why := " - no logs yet"
	if w := st.State.Waiting; w != nil && w.Reason != "" {
		switch w.Reason {
		case "ErrImagePull":
			why = ": image can't be pulled"
		case "ImagePullBackOff":
			why = ": trying and failing to pull image"
		default:
			why = ": " + w.Reason
		}
	}
	return fmt.Errorf("container %q in pod %q is waiting to start%s", container, pod.Name, why)
}

func statusOf(pod *v1.Pod, container string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}
