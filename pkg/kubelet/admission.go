// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/allocation"
	"keelson.dev/keelson/pkg/kubelet/eviction"
	"keelson.dev/keelson/pkg/kubelet/qos"
	"keelson.dev/keelson/pkg/kubelet/shutdown"
)

// admission decides whether the node accepts a new pod and whether a running pod can be resized in
// place.
type admission struct {
	shutdown   interface{ Down() error }
	eviction   interface{ RejectReason(pod *v1.Pod) string }
	sysctls    *allocation.Sysctls
	hardware   *hardware
	preemption interface {
		preempt(critical, victim *v1.Pod, missing v1.ResourceName)
	}
	node      nodeObject
	resources *resources
}

// nodeObject gives access to the node's own Node object in the API.
type nodeObject interface {
	// Current returns the Node as it was last read from the API. Refresh reads it from the API now.
	Current() *v1.Node
	Refresh(ctx context.Context) (*v1.Node, error)
}

func newAdmission(s *shared, r *resources, h *hardware, e *eviction.Manager, d *shutdown.Manager,
	p *preemption) (*admission, error) {
	sysctls, err := allocation.NewSysctls(r.machine.Info.KernelVersion, s.cfg.Kubelet.AllowedUnsafeSysctls)
	if err != nil {
		return nil, fmt.Errorf("allowedUnsafeSysctls: %w", err)
	}
	return &admission{shutdown: d, eviction: e, sysctls: sysctls, hardware: h, preemption: p, node: s.node,
		resources: r}, nil
}

// check runs the checks of a new pod in Kubernetes' order and returns the first refusal, or nil if
// the node accepts the pod. others are the pods already admitted. If a critical pod does not fit,
// check accepts it and starts to end enough pods of others to make room.
func (a *admission) check(pod *v1.Pod, others []*v1.Pod) *allocation.Refusal {
	if a.shutdown.Down() != nil {
		return &allocation.Refusal{Reason: shutdown.RefusalReason, Message: shutdown.RefusalMessage}
	}
	if why := a.eviction.RejectReason(pod); why != "" {
		return &allocation.Refusal{Reason: eviction.Reason, Message: why}
	}
	if r := a.sysctls.Check(pod); r != nil {
		return r
	}
	if r := a.hardware.admit(context.Background(), pod); r != nil {
		return r
	}
	n := allocation.Node{Object: a.node.Current(), Allocatable: a.resources.allocatable, AppArmor: appArmor()}
	r := allocation.Check(pod, others, n)
	if r != nil && r.Outdated() {
		var err error
		if n.Object, err = a.node.Refresh(context.Background()); err != nil {
			return r // reading the node failed, so the result for its last known version stands
		}
		r = allocation.Check(pod, others, n)
	}
	if r == nil {
		return nil
	}
	victims, missing, none := allocation.Victims(pod, others, n, eviction.IsCritical)
	switch {
	case none != nil:
		return none
	case len(victims) == 0:
		return r
	}
	for _, victim := range victims {
		a.preemption.preempt(pod, victim, missing)
	}
	return nil
}

// fixed returns why the resources of a running pod can never be changed in place to those in pod,
// or nil if they can be changed. The argument has is the pod with its present resources.
func (a *admission) fixed(pod, has *v1.Pod) *allocation.Refusal {
	if swapFixed(a.resources.qos.Swap, pod, has) {
		return &allocation.Refusal{
			Reason:  v1.PodReasonInfeasible,
			Message: "In-place resize of containers with swap is not supported.", Detail: "swap_limitation",
		}
	}
	return a.hardware.fixed(pod, has)
}

// swapFixed reports whether the change of a pod from its present resources (the argument has) to
// those in the argument pod would alter the memory request of a running container that may use
// swap. This is impossible without a restart: the container's swap limit depends on its memory
// request, and the kubelet does not change it while the container runs.
func swapFixed(swap qos.Swap, pod, has *v1.Pod) bool {
	for _, lists := range [][2][]v1.Container{{pod.Spec.InitContainers, has.Spec.InitContainers},
		{pod.Spec.Containers, has.Spec.Containers}} {
		for i := range lists[1] {
			now, old := &lists[0][i], &lists[1][i]
			restarts := slices.ContainsFunc(old.ResizePolicy, func(p v1.ContainerResizePolicy) bool {
				return p.ResourceName == v1.ResourceMemory && p.RestartPolicy == v1.RestartContainer
			})
			if !restarts && now.Resources.Requests.Memory().Cmp(*old.Resources.Requests.Memory()) != 0 &&
				(swap.Allows(pod, now) || swap.Allows(has, old)) {
				return true
			}
		}
	}
	return false
}

// appArmor reports whether the kernel enforces AppArmor profiles.
func appArmor() bool {
	b, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(b), "Y")
}
