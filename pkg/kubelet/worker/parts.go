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
	"keelson.dev/keelson/pkg/kubelet/status"
	"keelson.dev/keelson/pkg/kubelet/volume"
)

// Runtime is the container runtime. Stopping or removing something that does not exist succeeds.
type Runtime interface {
	Sandboxes
	Containers
	Resizer
	// Pod returns the sandboxes and containers of a pod in the runtime. The Pod is empty if the
	// runtime has none.
	Pod(ctx context.Context, uid types.UID) (*cri.Pod, error)
}

// Sandboxes are the runtime's sandboxes.
type Sandboxes interface {
	// RunSandbox starts a sandbox. If it fails, it may leave a sandbox that is not ready.
	RunSandbox(ctx context.Context, cfg *runtimeapi.PodSandboxConfig, handler string) (string, error)
	// StopSandbox kills the containers in a sandbox and stops the sandbox.
	StopSandbox(ctx context.Context, id string) error
	// RemoveSandbox removes a sandbox and its containers.
	RemoveSandbox(ctx context.Context, id string) error
}

// Containers are the runtime's containers.
type Containers interface {
	CreateContainer(ctx context.Context, sandbox string, cfg *runtimeapi.ContainerConfig,
		sc *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer returns when the container has ended. The runtime kills it after grace.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
}

// Resizer changes the resources of running containers.
type Resizer interface {
	UpdateResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error
	// MemoryUsage returns the memory that a container uses now, in bytes.
	MemoryUsage(ctx context.Context, id string) (int64, error)
}

// Volumes are the volumes of pods.
type Volumes interface {
	// Update updates the content of the pod's prepared volumes. If runs is true, it also updates
	// volumes that an earlier kubelet process prepared.
	Update(pod *v1.Pod, runs bool)
	Prepare(ctx context.Context, pod *v1.Pod) (volume.Mounts, error)
	Teardown(ctx context.Context, uid types.UID) error
}

// Objects are the API objects that pods refer to. They are watched for registered pods.
type Objects interface {
	env.Objects
	RegisterPod(pod *v1.Pod)
	UnregisterPod(pod *v1.Pod)
}

// Images pulls images.
type Images interface {
	// Ensure returns the image of a container, and pulls it if necessary. Its error is an
	// *images.Error.
	Ensure(ctx context.Context, pod *v1.Pod, c *v1.Container, sandbox *runtimeapi.PodSandboxConfig,
		handler string) (*runtimeapi.Image, error)
	Forget(uid types.UID)
}

// Devices are the devices of device plugins and DRA drivers.
type Devices interface {
	// Prepare prepares the pod's resource claims.
	Prepare(ctx context.Context, pod *v1.Pod) error
	// Container returns the settings, such as mounts and environment variables, that a container
	// needs to access its devices. It is called before each start of a container.
	Container(ctx context.Context, pod *v1.Pod, c *v1.Container) ([]*deviceapi.ContainerAllocateResponse, error)
	// Health returns the health of a container's devices.
	Health(pod *v1.Pod, c *v1.Container) []v1.ResourceStatus
}

// Cgroups are the cgroups of pods.
type Cgroups interface {
	// Parent returns the name of the pod's cgroup as the runtime expects it.
	Parent(pod *v1.Pod) string
	Ensure(pod *v1.Pod) error
	// Widen gives the pod's cgroup the larger of each limit of two versions of the pod.
	Widen(before, after *v1.Pod) error
	Remove(ctx context.Context, uid types.UID) error
}

// Statuses writes the statuses of pods to the API.
type Statuses interface {
	Observe(pod *v1.Pod)
	Forget(uid types.UID)
	Set(pod *v1.Pod, s v1.PodStatus)
	Get(uid types.UID) (v1.PodStatus, bool)
	// Delete deletes a pod from the API whose resources on the node are all released, once its last
	// status is written.
	Delete(pod *v1.Pod)
}

// Allocation decides which resources of the node pods get.
type Allocation interface {
	// Admit returns why a pod that is new on the node cannot run here, or nil.
	Admit(pod *v1.Pod) *allocation.Refusal
	// Resize grants an admitted pod the resources that its spec requests now, if the node has them.
	Resize(pod *v1.Pod) allocation.Resize
	// Reached records that a container has the resources it was granted, or that it does not run.
	Reached(uid types.UID, container string)
}

// Preemption tracks pods that end to make room for critical pods.
type Preemption interface {
	// StartBy returns the latest time at which to start a pod, even if pods that make room for it
	// have not ended. Zero means now. The pod's worker is woken when they have ended.
	StartBy(uid types.UID) time.Time
	// Victim returns why a pod ends if an earlier kubelet process began to preempt it, or nil.
	Victim(uid types.UID) *status.Verdict
}

// Placement is the assignment of CPUs, NUMA nodes and user namespaces to pods and containers.
type Placement interface {
	// Pinned returns the CPUs and NUMA nodes that a container must run on, as lists. Empty means
	// all.
	Pinned(pod types.UID, container string) (cpus, nodes string)
	// Exclusive reports whether a container has CPUs of its own, or, if container is empty,
	// whether any container of the pod has.
	Exclusive(pod types.UID, container string) bool
	// UserNamespace returns the pod's own user namespace, or nil if it uses the machine's.
	UserNamespace(pod *v1.Pod, handler string) (*runtimeapi.UserNamespace, error)
}

// Environment is the part of the cluster that pods depend on.
type Environment interface {
	// Services returns the services whose addresses containers in the namespace get as environment
	// variables.
	Services(namespace string) ([]*v1.Service, error)
	// RuntimeHandler returns the handler of a RuntimeClass. An empty class means the default
	// handler.
	RuntimeHandler(class string) (string, error)
}

// RuntimeState is the last known state of the runtime and its network.
type RuntimeState interface {
	// NetworkReady returns nil if sandboxes can be created, or why they cannot.
	NetworkReady() error
	// RecursiveReadOnly reports whether a handler supports recursive read-only mounts.
	RecursiveReadOnly(handler string) bool
	// Listening reports whether the container has listeners on all of these TCP ports.
	Listening(ctx context.Context, id string, ports []int32) bool
}

// Release is called at the end of a pod, in the order of its methods.
type Release interface {
	// Release releases the resources assigned to a pod, whose containers have all ended.
	Release(ctx context.Context, uid types.UID) error
	// Forget is called when nothing is left of a pod on the node. The Pool still knows the pod.
	Forget(uid types.UID)
	// Removed is called once the Pool no longer knows the pod.
	Removed(uid types.UID)
}

// Observer measures pods.
type Observer interface {
	// Started is called once, when a pod runs. took is the time since it was first seen, and phases
	// has the part of it that each phase took.
	Started(took time.Duration, phases map[Phase]time.Duration)
	// Updated is called with each new version of a pod.
	Updated(before, now *v1.Pod)
	// Resized is called after a change of running containers' resources.
	Resized(took time.Duration, err error)
}
