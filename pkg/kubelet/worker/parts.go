// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson.dev/keelson/pkg/kubelet/allocation"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/env"
	"keelson.dev/keelson/pkg/kubelet/volume"
)

// Runtime is the container runtime. What it is told to stop or to remove and
// does not have is stopped and removed.
type Runtime interface {
	Sandboxes
	Containers
	Resizer
	// Pod is all that the runtime has of a pod; nothing of it is an empty Pod.
	Pod(ctx context.Context, uid types.UID) (*cri.Pod, error)
}

// Sandboxes are the runtime's sandboxes.
type Sandboxes interface {
	// RunSandbox makes a sandbox that is up, or fails and may leave one that is not.
	RunSandbox(ctx context.Context, cfg *runtimeapi.PodSandboxConfig, handler string) (string, error)
	// StopSandbox ends whatever runs in a sandbox, without asking, and then the sandbox.
	StopSandbox(ctx context.Context, id string) error
	// RemoveSandbox forgets a sandbox with its containers.
	RemoveSandbox(ctx context.Context, id string) error
}

// Containers are the runtime's containers.
type Containers interface {
	CreateContainer(ctx context.Context, sandbox string, cfg *runtimeapi.ContainerConfig, sc *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer returns when the container has ended, which is at the latest after grace.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
}

// Resizer changes the resources of running containers.
type Resizer interface {
	UpdateResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error
	// MemoryUsage is what a container uses now, in bytes.
	MemoryUsage(ctx context.Context, id string) (int64, error)
}

// Volumes are the volumes of pods.
type Volumes interface {
	// Update brings the content of prepared volumes up to date with the pod. If it runs, those that
	// an earlier process prepared count too.
	Update(pod *v1.Pod, runs bool)
	Prepare(ctx context.Context, pod *v1.Pod) (volume.Mounts, error)
	Teardown(ctx context.Context, uid types.UID) error
}

// Objects are the API objects that pods refer to; they are kept at hand for registered pods.
type Objects interface {
	env.Objects
	RegisterPod(pod *v1.Pod)
	UnregisterPod(pod *v1.Pod)
}

// Images gets images onto the node.
type Images interface {
	// Ensure returns the image of a container. Its error is an *images.Error.
	Ensure(ctx context.Context, pod *v1.Pod, c *v1.Container, sandbox *runtimeapi.PodSandboxConfig, handler string) (*runtimeapi.Image, error)
	Forget(uid types.UID)
}

// Devices are the devices that plugins and drivers offer.
type Devices interface {
	// Prepare has what the pod claims prepared.
	Prepare(ctx context.Context, pod *v1.Pod) error
	// Container returns how a container that is about to start gets at its devices.
	Container(ctx context.Context, pod *v1.Pod, c *v1.Container) ([]*deviceapi.ContainerAllocateResponse, error)
	// Health tells how the devices are that a container has.
	Health(pod *v1.Pod, c *v1.Container) []v1.ResourceStatus
}

// Cgroups are the cgroups of pods.
type Cgroups interface {
	// Parent names the pod's cgroup for the runtime.
	Parent(pod *v1.Pod) string
	Ensure(pod *v1.Pod) error
	// Widen gives the pod's cgroup the larger of each limit of two versions of the pod.
	Widen(before, after *v1.Pod) error
	Remove(ctx context.Context, uid types.UID) error
}

// Statuses brings the statuses of pods to the API.
type Statuses interface {
	Observe(pod *v1.Pod)
	Forget(uid types.UID)
	Set(pod *v1.Pod, s v1.PodStatus)
	Get(uid types.UID) (v1.PodStatus, bool)
	// Delete has a pod that holds nothing any more deleted from the API, after its last status is there.
	Delete(pod *v1.Pod)
}

// Allocation decides what pods get of the node.
type Allocation interface {
	// Admit returns why a pod that is new on the node cannot run here, or nil.
	Admit(pod *v1.Pod) *allocation.Refusal
	// Resize gives an admitted pod what it asks for now, if the node has it.
	Resize(pod *v1.Pod) allocation.Resize
	// Reached notes that a container has what it was given, or that it does not run.
	Reached(uid types.UID, container string)
}
