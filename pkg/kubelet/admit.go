// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"keelson.dev/keelson/pkg/kubelet/allocation"
	"keelson.dev/keelson/pkg/kubelet/eviction"
	"keelson.dev/keelson/pkg/kubelet/qos"
	"keelson.dev/keelson/pkg/kubelet/shutdown"
)

// check puts the questions to a new pod in Kubernetes' order: the first answer that refuses counts.
func (k *Kubelet) check(pod *v1.Pod, others []*v1.Pod) *allocation.Refusal {
	if k.shutdown.Down() != nil {
		return &allocation.Refusal{Reason: shutdown.RefusalReason, Message: shutdown.RefusalMessage}
	}
	if why := k.eviction.Refuses(pod); why != "" {
		return &allocation.Refusal{Reason: eviction.Reason, Message: why}
	}
	if r := k.sysctls.Check(pod); r != nil {
		return r
	}
	if r := k.hardware.admit(context.Background(), pod); r != nil {
		return r
	}
	n := allocation.Node{Object: k.node.Current(), Allocatable: k.limits, AppArmor: appArmor()}
	r := allocation.Check(pod, others, n)
	if r != nil && r.Outdated() {
		var err error
		if n.Object, err = k.node.Refresh(context.Background()); err != nil {
			return r // what is known counts
		}
		r = allocation.Check(pod, others, n)
	}
	if r == nil {
		return nil
	}
	victims, missing, none := allocation.Victims(pod, others, n, eviction.Critical)
	switch {
	case none != nil:
		return none
	case len(victims) == 0:
		return r
	}
	for _, victim := range victims {
		k.preempt(pod, victim, missing)
	}
	return nil
}

// fixed tells why the resources of a pod can never be others than it has, or nil.
func (k *Kubelet) fixed(pod, has *v1.Pod) *allocation.Refusal {
	if swapFixed(k.qos.Swap, pod, has) {
		return &allocation.Refusal{
			Reason: v1.PodReasonInfeasible, Message: "In-place resize of containers with swap is not supported.", Detail: "swap_limitation",
		}
	}
	return k.hardware.fixed(pod, has)
}

// swapFixed tells whether a container is to ask for other memory, without being started anew, and may use swap before or after: what it
// has of the swap hangs on that, and is not changed while it runs.
func swapFixed(swap qos.Swap, pod, has *v1.Pod) bool {
	for _, lists := range [][2][]v1.Container{{pod.Spec.InitContainers, has.Spec.InitContainers}, {pod.Spec.Containers, has.Spec.Containers}} {
		for i := range lists[1] {
			now, old := &lists[0][i], &lists[1][i]
			anew := slices.ContainsFunc(old.ResizePolicy, func(p v1.ContainerResizePolicy) bool {
				return p.ResourceName == v1.ResourceMemory && p.RestartPolicy == v1.RestartContainer
			})
			if !anew && now.Resources.Requests.Memory().Cmp(*old.Resources.Requests.Memory()) != 0 && (swap.Allows(pod, now) || swap.Allows(has, old)) {
				return true
			}
		}
	}
	return false
}

// appArmor tells whether the kernel enforces profiles.
func appArmor() bool {
	b, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(b), "Y")
}

// reserved is what of the machine is for no pod.
type reserved struct {
	// nodes is what the system and Kubernetes keep, list that and what eviction keeps free.
	nodes, list v1.ResourceList
	// cpus are the CPUs that were named, count how many there are if none were.
	cpus  cpuset.CPUSet
	count int
	// memory is all that the machine has.
	memory int64
}

// reservations are what of the capacity pods do not get.
func reservations(c *kubeletconfig.KubeletConfiguration, capacity v1.ResourceList) (reserved, error) {
	out := reserved{nodes: v1.ResourceList{}, memory: capacity.Memory().Value()}
	err := checkEnforced(c)
	if err != nil {
		return out, err
	}
	if out.cpus, err = cpuset.Parse(c.ReservedSystemCPUs); err != nil {
		return out, fmt.Errorf("reservedSystemCPUs: %w", err)
	}
	for field, list := range map[string]map[string]string{"kubeReserved": c.KubeReserved, "systemReserved": c.SystemReserved} {
		for name, text := range list {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return out, fmt.Errorf("%s.%s: %w", field, name, err)
			}
			q.Add(out.nodes[v1.ResourceName(name)])
			out.nodes[v1.ResourceName(name)] = q
		}
	}
	if n := out.cpus.Size(); n > 0 { // it is said which, so how many does not count
		out.nodes[v1.ResourceCPU] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	cpu := out.nodes[v1.ResourceCPU]
	out.count, out.list = int((cpu.MilliValue()+999)/1000), out.nodes.DeepCopy()
	for signal, name := range map[string]v1.ResourceName{"memory.available": v1.ResourceMemory, "nodefs.available": v1.ResourceEphemeralStorage} {
		text, ok := c.EvictionHard[signal]
		if !ok {
			continue
		}
		q, err := threshold(text, capacity[name])
		if err != nil {
			return out, fmt.Errorf("evictionHard.%s: %w", signal, err)
		}
		q.Add(out.list[name])
		out.list[name] = q
	}
	return out, nil
}

// threshold reads an eviction threshold: an amount, or a percentage of the capacity.
func threshold(text string, capacity resource.Quantity) (resource.Quantity, error) {
	percent, ok := strings.CutSuffix(text, "%")
	if !ok {
		return resource.ParseQuantity(text)
	}
	f, err := strconv.ParseFloat(percent, 64)
	if err != nil || f < 0 || f > 100 {
		return resource.Quantity{}, fmt.Errorf("%q is not a percentage", text)
	}
	return *resource.NewQuantity(int64(float64(capacity.Value())*f/100), resource.BinarySI), nil
}

const (
	capSysResource = 24
	// oomUnlimited is the least oom_score_adj there is.
	oomUnlimited = -1000
)

// minOOMScore is the least oom_score_adj the kubelet may give: without the
// capability for more that is its own.
func minOOMScore() int64 {
	if b, err := os.ReadFile("/proc/self/status"); err == nil {
		for _, line := range strings.Split(string(b), "\n") {
			if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
				if caps, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64); err == nil && caps&(1<<capSysResource) != 0 {
					return oomUnlimited
				}
			}
		}
	}
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0
	}
	own, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0
	}
	return own
}
