// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/podsapi"
	"keelson.dev/keelson/pkg/kubelet/server"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// podView provides the node's pods with the newest statuses that the kubelet has computed.
type podView struct {
	sources  *sources
	statuses interface {
		Get(uid types.UID) (v1.PodStatus, bool)
	}
	client *cri.Client
}

var _ server.Pods = (*podView)(nil)

// nodePods provides the node's pods to agents on the node.
type nodePods struct {
	sources  *sources
	statuses *status.Manager
}

var _ podsapi.Source = nodePods{}

// Ready implements podsapi.Source.
func (n nodePods) Ready() bool { return n.sources.listed() }

// Pods implements podsapi.Source.
func (n nodePods) Pods() []*v1.Pod { return n.sources.all() }

// Status implements podsapi.Source.
func (n nodePods) Status(uid types.UID) (v1.PodStatus, bool) { return n.statuses.Get(uid) }

// Pods implements server.Pods. It returns all the node's pods with their newest statuses.
func (p *podView) Pods() []*v1.Pod {
	list := p.sources.all()
	for i := range list {
		list[i] = p.present(list[i])
	}
	return list
}

// present returns a copy of the pod with its newest status, which the kubelet may not have written
// to the API yet.
func (p *podView) present(pod *v1.Pod) *v1.Pod {
	s, ok := p.statuses.Get(pod.UID)
	if !ok {
		return pod
	}
	pod = pod.DeepCopy()
	pod.Status = s
	return pod
}

// live returns the pods that have not ended.
func (p *podView) live() []*v1.Pod { return slices.DeleteFunc(p.Pods(), ended) }

// Pod implements server.Pods. It returns the pod with its newest status.
func (p *podView) Pod(namespace, name string) (*v1.Pod, bool) {
	pod := p.sources.named(namespace, name)
	if pod == nil {
		return nil, false
	}
	return p.present(pod), true
}

// RunningPods implements server.Pods. It returns the pods that run in the container runtime, even
// if the API does not have them.
func (p *podView) RunningPods(ctx context.Context) ([]*v1.Pod, error) {
	digest, err := p.client.Digest(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the runtime: %w", err)
	}
	var out []*v1.Pod
	for uid := range digest {
		pod, err := p.client.Pod(ctx, uid)
		if err != nil {
			return nil, fmt.Errorf("pod %s of the runtime: %w", uid, err)
		}
		if pod.Running() {
			out = append(out, pod.MinimalPod())
		}
	}
	return out, nil
}

// ContainerLog implements server.Pods. It finds the log file of the container's latest run, or of
// the run before it if previous is true.
func (p *podView) ContainerLog(ctx context.Context, pod *v1.Pod, container string,
	previous bool) (server.LogSource, error) {
	st := statusOf(pod, container)
	if st == nil {
		return server.LogSource{}, fmt.Errorf("container %q in pod %q is not available", container, pod.Name)
	}
	seen, err := p.client.Pod(ctx, pod.UID)
	if err != nil {
		return server.LogSource{}, fmt.Errorf("container runtime: %s", cri.Message(err))
	}
	run := seen.Latest(container)
	if previous {
		run = seen.Run(container, 1)
		// While the container waits for its next start, the request's "previous" run is the newest
		// run in the runtime.
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
		seen, err := p.client.Pod(ctx, pod.UID)
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

// notStarted returns an error that explains why there is no log. Its text is that of Kubernetes.
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
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
		pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}
