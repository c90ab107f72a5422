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

// Runtime is the container runtime. Calls that stop or remove a container or sandbox succeed if it
// does not exist.
type Runtime interface {
	Sandboxes
	Containers
	Resizer
	// Pod returns a pod's sandboxes and containers in the runtime. The result is empty if the
	// runtime does not have the pod.
	Pod(ctx context.Context, uid types.UID) (*cri.Pod, error)
}

// Sandboxes manages the runtime's pod sandboxes.
type Sandboxes interface {
	// RunSandbox creates and starts a sandbox. If it fails, it may leave behind a sandbox that is
	// not ready.
	RunSandbox(ctx context.Context, cfg *runtimeapi.PodSandboxConfig, handler string) (string, error)
	// StopSandbox kills all containers of a sandbox and stops the sandbox.
	StopSandbox(ctx context.Context, id string) error
	// RemoveSandbox removes a sandbox and all its containers.
	RemoveSandbox(ctx context.Context, id string) error
}

// Containers manages the runtime's containers.
type Containers interface {
	CreateContainer(ctx context.Context, sandbox string, cfg *runtimeapi.ContainerConfig,
		sc *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer signals the container and returns when the container has exited. The runtime
	// kills the container after the grace period.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
}

// Resizer changes the resources of running containers.
type Resizer interface {
	UpdateResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error
	// MemoryUsage returns the memory that a container uses now, in bytes.
	MemoryUsage(ctx context.Context, id string) (int64, error)
}

// Volumes prepares and removes the volumes of pods.
type Volumes interface {
	// Update updates the content of those volumes of the pod that this kubelet process has
	// prepared. If runs is true, it also updates volumes that an earlier kubelet process prepared.
	Update(pod *v1.Pod, runs bool)
	Prepare(ctx context.Context, pod *v1.Pod) (volume.Mounts, error)
	Teardown(ctx context.Context, uid types.UID) error
}

// Objects reads the API objects that pods refer to. It watches the objects of registered pods.
type Objects interface {
	env.Objects
	RegisterPod(pod *v1.Pod)
	UnregisterPod(pod *v1.Pod)
}

// Images provides the images of containers.
type Images interface {
	// Ensure returns the container's image and pulls it first if necessary. A failed pull is
	// returned as an *images.Error.
	Ensure(ctx context.Context, pod *v1.Pod, c *v1.Container, sandbox *runtimeapi.PodSandboxConfig,
		handler string) (*runtimeapi.Image, error)
	Forget(uid types.UID)
}

// Devices prepares the devices of device plugins and DRA drivers for pods.
type Devices interface {
	// Prepare makes the DRA drivers prepare the pod's resource claims.
	Prepare(ctx context.Context, pod *v1.Pod) error
	// Container returns the settings, such as mounts and environment variables, that a container
	// needs to access its devices. It is called before each start of a container.
	Container(ctx context.Context, pod *v1.Pod, c *v1.Container) ([]*deviceapi.ContainerAllocateResponse, error)
	// Health returns the health of the devices that a container uses.
	Health(pod *v1.Pod, c *v1.Container) []v1.ResourceStatus
}

// Cgroups manages the cgroups of pods.
type Cgroups interface {
	// Parent returns the name of the pod's cgroup in the form that the runtime expects.
	Parent(pod *v1.Pod) string
	Ensure(pod *v1.Pod) error
	// Widen sets each limit of the pod's cgroup to the larger of the limits for two versions of the
	// pod.
	Widen(before, after *v1.Pod) error
	Remove(ctx context.Context, uid types.UID) error
}

// Statuses writes the statuses of pods to the API.
type Statuses interface {
	Observe(pod *v1.Pod)
	Forget(uid types.UID)
	Set(pod *v1.Pod, s v1.PodStatus)
	Get(uid types.UID) (v1.PodStatus, bool)
	// Delete deletes a pod from the API after the pod's last status was written. The node no longer
	// holds any resources of the pod.
	Delete(pod *v1.Pod)
}

// Allocation decides which of the node's resources each pod gets.
type Allocation interface {
	// Admit returns why the node cannot run a new pod, or nil if it can.
	Admit(pod *v1.Pod) *allocation.Refusal
	// Resize grants an admitted pod the resources that its spec now requests, if the node has them.
	Resize(pod *v1.Pod) allocation.Resize
	// Reached records that a container runs with the resources that it was granted, or that it does
	// not run.
	Reached(uid types.UID, container string)
}

// Preemption tracks which pods the kubelet ends to make room for critical pods.
type Preemption interface {
	// StartBy returns the time until which a critical pod waits for the pods that end to make room
	// for it. When that time has passed, the pod starts even if they have not ended. Zero means
	// that the pod need not wait. If they end earlier, the pod's worker is woken.
	StartBy(uid types.UID) time.Time
	// Victim returns the verdict for a pod that an earlier kubelet process began to preempt, or nil
	// for other pods.
	Victim(uid types.UID) *status.Verdict
}

// Placement assigns CPUs, NUMA nodes and user namespaces to pods and containers.
type Placement interface {
	// Pinned returns the CPUs and NUMA nodes on which a container must run, as lists for cpuset
	// cgroups. An empty list means all of them.
	Pinned(pod types.UID, container string) (cpus, nodes string)
	// Exclusive reports whether the container has CPUs of its own. If container is empty, it
	// reports whether any container of the pod has.
	Exclusive(pod types.UID, container string) bool
	// UserNamespace returns the pod's own user namespace, or nil if the pod uses the host's.
	UserNamespace(pod *v1.Pod, handler string) (*runtimeapi.UserNamespace, error)
}

// Environment provides cluster objects that the start of containers depends on.
type Environment interface {
	// Services returns the Services whose addresses the containers in the namespace get as
	// environment variables.
	Services(namespace string) ([]*v1.Service, error)
	// RuntimeHandler returns the runtime handler of a RuntimeClass. If class is empty, it returns
	// "", the default handler.
	RuntimeHandler(class string) (string, error)
}

// RuntimeState reports the last known state of the runtime and its network.
type RuntimeState interface {
	// NetworkReady returns nil if pods can be connected to the network, and otherwise the reason
	// why they cannot.
	NetworkReady() error
	// RecursiveReadOnly reports whether a runtime handler supports recursive read-only mounts.
	RecursiveReadOnly(handler string) bool
	// Listening reports whether the container listens on all the given TCP ports.
	Listening(ctx context.Context, id string, ports []int32) bool
}

// Release is called when a pod ends: first Release, then Forget, then Removed.
type Release interface {
	// Release releases the resources that are assigned to a pod. All containers of the pod have
	// exited.
	Release(ctx context.Context, pod *v1.Pod) error
	// Forget is called when nothing of the pod is left on the node. The pod still has a worker.
	Forget(uid types.UID)
	// Removed is called after Forget, when the pod no longer has a worker.
	Removed(uid types.UID)
}

// Observer measures the starts and resizes of pods.
type Observer interface {
	// Started is called once, when the pod runs. took is the time since the kubelet first saw the
	// pod, and phases holds the part of it that each phase took.
	Started(took time.Duration, phases map[Phase]time.Duration)
	// Updated is called when the pod has changed in the API.
	Updated(before, now *v1.Pod)
	// Resized is called after the worker has changed the resources of running containers. err is
	// the error if that failed.
	Resized(took time.Duration, err error)
}
