// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/source"
)

// kind returns the value of the metrics' label for the kind of the container: init, ephemeral or
// main.
func (s *starter) kind(c *v1.Container) string {
	if initIndex(s.pod, c.Name) >= 0 {
		return metrics.InitContainer
	}
	for i := range s.pod.Spec.EphemeralContainers {
		if s.pod.Spec.EphemeralContainers[i].Name == c.Name {
			return metrics.EphemeralContainer
		}
	}
	return metrics.Container
}

// countImages counts the image volumes that a container mounts. err is the error of the container's
// creation, or nil if it was created.
func (s *starter) countImages(c *v1.Container, volumes map[string]*runtimeapi.ImageSpec, err error) {
	mounts := 0
	for i := range c.VolumeMounts {
		if volumes[c.VolumeMounts[i].Name] != nil {
			mounts++
		}
	}
	refusal := ""
	if err != nil {
		refusal = cri.Message(err)
	}
	s.cfg.Metrics.ImageVolumes(len(volumes), mounts, refusal)
}

// Census counts workers, sandboxes and containers, as the workers have last read them from the
// runtime. It makes no calls to the runtime or the API.
func (r *Registry) Census() metrics.Census {
	out := metrics.Census{Containers: map[string]int{}, Workers: map[metrics.Worker]int{}}
	for _, w := range r.all() {
		w.census(&out)
	}
	return out
}

func (w *worker) census(out *metrics.Census) {
	w.in.Lock()
	pod, removed, bare := w.in.pod, w.in.removed, w.in.bare
	w.in.Unlock()
	w.shown.mu.Lock()
	defer w.shown.mu.Unlock()
	one := metrics.Worker{Lifecycle: metrics.Syncing, Config: metrics.Desired}
	switch {
	case w.shown.over:
		one.Lifecycle = metrics.IsTerminated
	case w.shown.ending:
		one.Lifecycle = metrics.Terminating
	}
	switch {
	case bare:
		one.Config = metrics.RuntimeOnly
	case removed:
		one.Config = metrics.Orphan
	}
	one.Static = pod != nil && source.Static(pod)
	out.Workers[one]++
	seen := w.shown.look.seen
	if seen == nil {
		return
	}
	for i := range seen.Sandboxes {
		if seen.Sandboxes[i].Ready {
			out.Sandboxes++
			break
		}
	}
	for i := range seen.Containers {
		out.Containers[stateName(seen.Containers[i].State)]++
	}
}

func stateName(s cri.State) string {
	switch s {
	case cri.Created:
		return metrics.IsCreated
	case cri.Running:
		return metrics.IsRunning
	case cri.Exited:
		return metrics.IsExited
	}
	return metrics.IsUnknown
}
