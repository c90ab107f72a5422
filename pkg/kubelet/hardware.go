// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/cpuset"

	"keelson.dev/keelson/pkg/kubelet/allocation"
	"keelson.dev/keelson/pkg/kubelet/cpus"
	"keelson.dev/keelson/pkg/kubelet/devices"
	"keelson.dev/keelson/pkg/kubelet/dra"
	"keelson.dev/keelson/pkg/kubelet/memory"
	"keelson.dev/keelson/pkg/kubelet/numa"
	"keelson.dev/keelson/pkg/kubelet/plugins"
	"keelson.dev/keelson/pkg/kubelet/qos"
	"keelson.dev/keelson/pkg/kubelet/userns"
	"keelson.dev/keelson/pkg/kubelet/worker"
)

// hardware manages the parts of the machine that are assigned to particular pods: devices of device
// plugins, resource claims of DRA drivers, ranges of user IDs, CPUs and the memory of NUMA nodes.
type hardware struct {
	align   *numa.Manager
	cpus    *cpus.Manager
	memory  *memory.Manager
	devices *devices.Manager
	claims  *dra.Manager
	users   *userns.Manager
	plugins *plugins.Watcher
	// handlers returns a handler of the container runtime by its name.
	handlers interface {
		handler(name string) *runtimeapi.RuntimeHandler
	}
}

var (
	_ worker.Devices   = (*hardware)(nil)
	_ worker.Placement = (*hardware)(nil)
)

// newHardware reads the machine's layout and builds the managers. The resources in kept are
// reserved and not assigned to pods. The handler storage registers CSI drivers. Pods without CPUs
// of their own run on shared CPUs; cpusChanged is called when the set of shared CPUs changes.
func newHardware(s *shared, kept reserved, r *runtime, storage plugins.Handler, cpusChanged func()) (*hardware, error) {
	cfg := s.cfg
	length := int64(userns.DefaultLength)
	if u := cfg.Kubelet.UserNamespaces; u != nil && u.IDsPerPod != nil && *u.IDsPerPod != 0 {
		length = *u.IDsPerPod
	}
	users, err := userns.New(filepath.Join(cfg.RootDir, "pods"), length, int(cfg.Kubelet.MaxPods))
	if err != nil {
		return nil, err
	}
	layout, err := numa.Read("/sys", kept.memory)
	if err != nil {
		return nil, fmt.Errorf("layout of the machine: %w", err)
	}
	h := &hardware{
		users: users, handlers: r,
		devices: devices.NewManager(devices.Config{
			Dir: filepath.Join(cfg.RootDir, "device-plugins"), Nodes: layout.NodeIDs(), Clock: cfg.Clock, Log: cfg.Log,
			Changed: s.node.Poke, Affected: s.workers.Wake,
		}),
		claims: dra.NewManager(dra.Config{
			File: filepath.Join(cfg.RootDir, "dra_manager_state"), Clock: cfg.Clock, Log: cfg.Log,
			Metrics: cfg.Metrics, Wipe: wipe(cfg), Changed: s.workers.Wake,
			Claim: func(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
				return cfg.Client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
			},
		}),
	}
	if err := h.pin(cfg, layout, kept, cpusChanged); err != nil {
		return nil, err
	}
	h.plugins = plugins.New(plugins.Config{
		Dir: filepath.Join(cfg.RootDir, "plugins_registry"), Clock: cfg.Clock, Log: cfg.Log,
		Handlers: map[string]plugins.Handler{registration.DRAPlugin: h.claims,
			registration.DevicePlugin: h.devices, registration.CSIPlugin: storage},
	})
	return h, nil
}

// wipe returns a function that deletes ResourceSlices of this node: those of the given DRA driver,
// or those of all drivers if the driver's name is empty.
func wipe(cfg Config) func(context.Context, string) error {
	return func(ctx context.Context, driver string) error {
		of := fields.Set{resourceapi.ResourceSliceSelectorNodeName: cfg.NodeName}
		if driver != "" {
			of[resourceapi.ResourceSliceSelectorDriver] = driver
		}
		return cfg.Client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{FieldSelector: of.String()})
	}
}

// pin creates the CPU manager, the memory manager, and the topology manager, which aligns CPUs and
// memory with devices.
func (h *hardware) pin(cfg Config, layout *numa.Layout, kept reserved, cpusChanged func()) error {
	c := cfg.Kubelet
	options, err := cpus.ParseOptions(c.CPUManagerPolicyOptions, c.FeatureGates)
	if err != nil {
		return fmt.Errorf("cpuManagerPolicyOptions: %w", err)
	}
	h.cpus, err = cpus.New(cpus.Config{
		Layout: layout, Policy: c.CPUManagerPolicy, Options: options, TopologyPolicy: c.TopologyManagerPolicy,
		Reserved: kept.cpus, Count: kept.count,
		File: filepath.Join(cfg.RootDir, "cpu_manager_state"), Changed: cpusChanged, Log: cfg.Log, Metrics: cfg.Metrics,
	})
	if err != nil {
		return fmt.Errorf("CPU manager: %w", err)
	}
	h.memory, err = memory.New(memory.Config{
		Layout: layout, Policy: c.MemoryManagerPolicy, Reserved: c.ReservedMemory, NodeReserved: kept.list,
		File: filepath.Join(cfg.RootDir, "memory_manager_state"), Log: cfg.Log, Metrics: cfg.Metrics,
	})
	if err != nil {
		return fmt.Errorf("memory manager: %w", err)
	}
	h.align, err = numa.New(numa.Config{
		Layout: layout, Policy: c.TopologyManagerPolicy, Scope: c.TopologyManagerScope,
		Options:   c.TopologyManagerPolicyOptions,
		Providers: []numa.Provider{h.devices, h.cpus, h.memory}, Metrics: cfg.Metrics,
	})
	if err != nil {
		return fmt.Errorf("topology manager: %w", err)
	}
	return nil
}

// admit assigns devices, CPUs and memory to the pod, or returns why that is impossible.
func (h *hardware) admit(ctx context.Context, pod *v1.Pod) *allocation.Refusal {
	err := h.align.Admit(ctx, pod)
	var far *numa.AffinityError
	var threads *cpus.AlignmentError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &far):
		return &allocation.Refusal{Reason: numa.ReasonAffinity, Message: far.Error()}
	case errors.As(err, &threads):
		return &allocation.Refusal{Reason: cpus.ReasonAlignment, Message: threads.Error()}
	}
	return &allocation.Refusal{Reason: "UnexpectedAdmissionError",
		Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
}

// fixed returns why the resources of a running pod cannot be changed in place to those in pod, or
// nil if they can be changed. The argument has is the pod with its present resources.
func (h *hardware) fixed(pod, has *v1.Pod) *allocation.Refusal {
	if qos.Class(pod) != v1.PodQOSGuaranteed {
		return nil
	}
	differs := func(name v1.ResourceName) bool {
		for _, lists := range [][2][]v1.Container{{pod.Spec.InitContainers, has.Spec.InitContainers},
			{pod.Spec.Containers, has.Spec.Containers}} {
			for i := range lists[0] {
				if !lists[0][i].Resources.Requests[name].Equal(lists[1][i].Resources.Requests[name]) {
					return true
				}
			}
		}
		return false
	}
	const text = "Resize is infeasible for Guaranteed Pods alongside %s Manager policy %q"
	switch {
	case h.cpus.Static() && differs(v1.ResourceCPU):
		return &allocation.Refusal{Reason: v1.PodReasonInfeasible,
			Message: fmt.Sprintf(text, "CPU", cpus.PolicyStatic), Detail: "guaranteed_pod_cpu_manager_static_policy"}
	case h.memory.Static() && differs(v1.ResourceMemory):
		return &allocation.Refusal{Reason: v1.PodReasonInfeasible,
			Message: fmt.Sprintf(text, "Memory", memory.PolicyStatic), Detail: "guaranteed_pod_memory_manager_static_policy"}
	}
	return nil
}

// Pinned implements worker.Placement. It returns the CPUs and the NUMA nodes that the container may
// use, as lists for cpuset cgroups.
func (h *hardware) Pinned(pod types.UID, container string) (cpuList, nodes string) {
	return h.cpus.AllowedCPUs(pod, container).String(),
		cpuset.New(h.memory.AllowedNodes(pod, container).Nodes()...).String()
}

// Exclusive implements worker.Placement. It reports whether the container has CPUs of its own or,
// if container is empty, whether any container of the pod has.
func (h *hardware) Exclusive(pod types.UID, container string) bool {
	return h.cpus.Exclusive(pod, container)
}

// Prepare implements worker.Devices. It makes the DRA drivers prepare the pod's resource claims.
func (h *hardware) Prepare(ctx context.Context, pod *v1.Pod) error { return h.claims.Prepare(ctx, pod) }

// Container implements worker.Devices. It returns what the runtime must give to the container for
// the container's devices and resource claims.
func (h *hardware) Container(ctx context.Context, pod *v1.Pod,
	c *v1.Container) ([]*deviceapi.ContainerAllocateResponse, error) {
	out, err := h.devices.Container(ctx, pod, c)
	if err != nil {
		return nil, err
	}
	names, err := h.claims.Container(pod, c)
	if err != nil {
		return nil, err
	}
	claimed := &deviceapi.ContainerAllocateResponse{}
	for _, n := range names {
		claimed.CdiDevices = append(claimed.CdiDevices, &deviceapi.CDIDevice{Name: n})
	}
	return append(out, claimed), nil
}

// Health implements worker.Devices. It returns the health of the container's devices and claims for
// the pod's status.
func (h *hardware) Health(pod *v1.Pod, c *v1.Container) []v1.ResourceStatus {
	return append(h.devices.Health(pod.UID, c.Name), h.claims.Health(pod, c)...)
}

// release releases all hardware of a pod whose containers have all ended.
func (h *hardware) release(ctx context.Context, uid types.UID) error {
	if err := h.claims.Unprepare(ctx, uid); err != nil {
		return err
	}
	h.devices.Free(uid)
	h.cpus.Free(uid)
	h.memory.Free(uid)
	return h.users.Free(uid)
}

// pods returns the UIDs of the pods that have hardware assigned. A UID can occur more than once.
func (h *hardware) pods() []types.UID {
	return slices.Concat(h.users.Pods(), h.claims.Pods(), h.devices.Pods(), h.cpus.Pods(), h.memory.Pods())
}

// UserNamespace implements worker.Placement. It returns the range of user IDs of a pod with
// `hostUsers: false`, or nil for other pods.
func (h *hardware) UserNamespace(pod *v1.Pod, handler string) (*runtimeapi.UserNamespace, error) {
	if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
		return nil, nil
	}
	if !h.handlers.handler(handler).GetFeatures().GetUserNamespaces() {
		if handler != "" {
			return nil, fmt.Errorf(
				"can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
		}
		return nil, errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	}
	return h.users.Get(pod.UID)
}

// run runs the device manager, the watcher of plugins and the claim manager until ctx ends.
func (h *hardware) run(ctx context.Context) error {
	return runAll(ctx, h.devices.Run, h.plugins.Run, h.claims.Run)
}
