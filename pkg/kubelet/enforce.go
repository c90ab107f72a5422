// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/keelson/pkg/kubelet/cgroup"
	"keelson.dev/keelson/pkg/kubelet/node"
	"keelson.dev/keelson/pkg/kubelet/qos"
)

// What enforceNodeAllocatable names; those that end in "compressible" are about CPUs alone.
const (
	enforceNone               = "none"
	enforcePods               = "pods"
	enforceSystem             = "system-reserved"
	enforceSystemCompressible = "system-reserved-compressible"
	enforceKube               = "kube-reserved"
	enforceKubeCompressible   = "kube-reserved-compressible"
)

// nodeQOS is what the formulae of resources need to know.
func (k *Kubelet) nodeQOS() (qos.Node, error) {
	c := k.cfg.Kubelet
	n := qos.Node{
		Memory: k.machine.Memory, CFSQuota: c.CPUCFSQuota == nil || *c.CPUCFSQuota, Period: c.CPUCFSQuotaPeriod.Duration,
		Unified: cgroup.Unified(cgroupMount), MinOOMScore: minOOMScore(), HugePages: slices.Sorted(maps.Keys(k.machine.HugePages)),
		SingleProcessOOMKill: c.SingleProcessOOMKill != nil && *c.SingleProcessOOMKill,
	}
	if c.FailSwapOn == nil || *c.FailSwapOn {
		if k.machine.Swap > 0 {
			return n, errors.New("running with swap on is not supported, please disable swap or set failSwapOn to false in the configuration")
		}
	}
	switch c.MemorySwap.SwapBehavior {
	case "", "NoSwap":
	case "LimitedSwap":
		n.Swap.Limited = true
	default:
		return n, fmt.Errorf("memorySwap.swapBehavior %q is neither NoSwap nor LimitedSwap", c.MemorySwap.SwapBehavior)
	}
	n.Swap.Capacity, n.Swap.Controller = k.machine.Swap, n.Unified && swapController()
	if n.Unified && c.FeatureGates["MemoryQoS"] {
		n.Protection = qos.Protection{Throttling: 0.9, Allocatable: k.limits.Memory().Value(), Reserve: c.MemoryReservationPolicy == kubeletconfig.TieredReservationMemoryReservationPolicy}
		if c.MemoryThrottlingFactor != nil {
			n.Protection.Throttling = *c.MemoryThrottlingFactor
		}
	}
	return n, nil
}

// swapController tells whether the kernel counts and limits swap: the root has no limits, so the process's own cgroup is looked at.
func swapController() bool {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return false
	}
	_, path, _ := strings.Cut(strings.TrimSpace(string(b)), "::")
	_, err = os.Stat(filepath.Join(cgroupMount, path, "memory.swap.max"))
	return err == nil
}

// cgroupConfig is what is enforced of the node's resources.
func (k *Kubelet) cgroupConfig(capacity v1.ResourceList) cgroup.Config {
	c := k.cfg.Kubelet
	out := cgroup.Config{
		Mount: cgroupMount, Root: c.CgroupRoot, Node: k.qos, PidsPerPod: -1, Exclusive: func(pod types.UID) bool { return k.hardware.exclusive(pod, "") },
		Others: map[string]qos.PodLimits{}, Metrics: k.nodeCounts, Clock: k.cfg.Clock,
	}
	if c.PodPidsLimit != nil {
		out.PidsPerPod = *c.PodPidsLimit
	}
	for _, what := range c.EnforceNodeAllocatable {
		switch what {
		case enforcePods:
			// Not less what eviction keeps free: it is to find room to act in.
			limits := limitsOf(node.Allocatable(capacity, k.kept.nodes), true)
			if pids, ok := k.kept.nodes["pid"]; ok {
				limits.Pids = k.machine.MaxPIDs - pids.Value()
			}
			out.Pods = &limits
		case enforceSystem, enforceSystemCompressible:
			out.Others[c.SystemReservedCgroup] = limitsOf(parsed(c.SystemReserved), what == enforceSystem)
		case enforceKube, enforceKubeCompressible:
			out.Others[c.KubeReservedCgroup] = limitsOf(parsed(c.KubeReserved), what == enforceKube)
		}
	}
	return out
}

// checkEnforced checks what is to be enforced.
func checkEnforced(c *kubeletconfig.KubeletConfiguration) error {
	known := []string{enforceNone, enforcePods, enforceSystem, enforceSystemCompressible, enforceKube, enforceKubeCompressible}
	for _, what := range c.EnforceNodeAllocatable {
		switch {
		case !slices.Contains(known, what):
			return fmt.Errorf("enforceNodeAllocatable: %q is none of %s", what, strings.Join(known, ", "))
		case what == enforceNone && len(c.EnforceNodeAllocatable) > 1:
			return errors.New("enforceNodeAllocatable: none cannot be with others")
		case strings.HasPrefix(what, enforceSystem) && c.SystemReservedCgroup == "":
			return fmt.Errorf("enforceNodeAllocatable: %s needs systemReservedCgroup", what)
		case strings.HasPrefix(what, enforceKube) && c.KubeReservedCgroup == "":
			return fmt.Errorf("enforceNodeAllocatable: %s needs kubeReservedCgroup", what)
		}
	}
	return nil
}

// limitsOf are the limits of a cgroup that may have these resources; only CPUs unless all.
func limitsOf(l v1.ResourceList, all bool) qos.PodLimits {
	out := qos.PodLimits{HugePages: map[string]int64{}}
	if cpu, ok := l[v1.ResourceCPU]; ok {
		shares := qos.Shares(cpu.MilliValue())
		out.Shares = &shares
	}
	if !all {
		return out
	}
	if memory, ok := l[v1.ResourceMemory]; ok {
		bytes := memory.Value()
		out.Memory = &bytes
	}
	if pids, ok := l["pid"]; ok {
		out.Pids = pids.Value()
	}
	for name, q := range l {
		if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			if page, err := resource.ParseQuantity(size); err == nil {
				out.HugePages[qos.PageName(page.Value())] = q.Value()
			}
		}
	}
	return out
}

// parsed reads quantities that were checked before.
func parsed(list map[string]string) v1.ResourceList {
	out := v1.ResourceList{}
	for name, text := range list {
		if q, err := resource.ParseQuantity(text); err == nil {
			out[v1.ResourceName(name)] = q
		}
	}
	return out
}

// classes are the pods' cgroups, with what their classes get of the CPUs.
type classes struct {
	*cgroup.Manager
	kubelet *Kubelet
}

// Ensure makes the pod's cgroup, and gives its class what it has now.
func (c classes) Ensure(pod *v1.Pod) error {
	if err := c.Manager.Ensure(pod); err != nil {
		return err
	}
	return c.kubelet.share()
}

// share gives the classes of pods what the pods of the node that have not ended ask for.
func (k *Kubelet) share() error {
	return k.cgroups.Share(slices.DeleteFunc(k.sources.all(), func(pod *v1.Pod) bool {
		return pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded
	}))
}
