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
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"keelson.dev/keelson/pkg/kubelet/cgroup"
	"keelson.dev/keelson/pkg/kubelet/node"
	"keelson.dev/keelson/pkg/kubelet/qos"
)

// resources describes the machine's capacity and the part of it that pods may use.
type resources struct {
	machine  node.Machine
	capacity v1.ResourceList
	reserved reserved
	// allocatable holds the capacity minus the reserved amounts.
	allocatable v1.ResourceList
	// qos holds the values from which the limits of pods and containers are computed.
	qos qos.Node
	// cgroups holds the limits of the cgroups of all pods together, of the system and of
	// Kubernetes.
	cgroups enforced
}

// readResources reads the machine's capacity and subtracts the amounts that the configuration
// reserves.
func readResources(cfg Config) (*resources, error) {
	m, err := node.ReadMachine(cfg.RootDir)
	if err != nil {
		return nil, fmt.Errorf("read the machine: %w", err)
	}
	r := &resources{machine: m, capacity: m.Capacity(maxPods(cfg.Kubelet, m.CPUs))}
	if r.reserved, err = reservations(cfg.Kubelet, r.capacity); err != nil {
		return nil, err
	}
	r.allocatable = node.Allocatable(r.capacity, r.reserved.list)
	if r.qos, err = nodeQOS(cfg.Kubelet, m, r.allocatable); err != nil {
		return nil, err
	}
	r.cgroups = enforce(cfg.Kubelet, m, r.reserved)
	return r, nil
}

// podMemory returns how many bytes of memory all pods together may use, or 0 if this is not
// limited.
func (r *resources) podMemory() int64 {
	if p := r.cgroups.pods; p != nil && p.Memory != nil {
		return *p.Memory
	}
	return 0
}

// maxPods returns how many pods may run on a node that has the given number of CPUs.
func maxPods(c *kubeletconfig.KubeletConfiguration, cpus int) int32 {
	if c.PodsPerCore == 0 {
		return c.MaxPods
	}
	return int32(min(int64(c.MaxPods), int64(c.PodsPerCore)*int64(cpus)))
}

// reserved describes the part of the machine that pods cannot use.
type reserved struct {
	// nodes holds the amounts that are reserved for the system and for Kubernetes. list holds these
	// amounts plus the amounts that eviction keeps free.
	nodes, list v1.ResourceList
	// cpus are the reserved CPUs; the set is empty if the configuration does not name any. count is
	// the number of reserved CPUs in either case, rounded up.
	cpus  cpuset.CPUSet
	count int
	// memory is the total memory of the machine in bytes.
	memory int64
}

// reservations computes which part of the capacity pods cannot use.
func reservations(c *kubeletconfig.KubeletConfiguration, capacity v1.ResourceList) (reserved, error) {
	out := reserved{nodes: v1.ResourceList{}, memory: capacity.Memory().Value()}
	err := checkEnforced(c)
	if err != nil {
		return out, err
	}
	if out.cpus, err = cpuset.Parse(c.ReservedSystemCPUs); err != nil {
		return out, fmt.Errorf("reservedSystemCPUs: %w", err)
	}
	for field, list := range map[string]map[string]string{"kubeReserved": c.KubeReserved,
		"systemReserved": c.SystemReserved} {
		for name, text := range list {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return out, fmt.Errorf("%s.%s: %w", field, name, err)
			}
			q.Add(out.nodes[v1.ResourceName(name)])
			out.nodes[v1.ResourceName(name)] = q
		}
	}
	// If the configuration names the reserved CPUs, their number replaces the amounts of CPU in
	// kubeReserved and systemReserved.
	if n := out.cpus.Size(); n > 0 {
		out.nodes[v1.ResourceCPU] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	cpu := out.nodes[v1.ResourceCPU]
	out.count, out.list = int((cpu.MilliValue()+999)/1000), out.nodes.DeepCopy()
	for signal, name := range map[string]v1.ResourceName{"memory.available": v1.ResourceMemory,
		"nodefs.available": v1.ResourceEphemeralStorage} {
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

// threshold parses an eviction threshold, which is either an amount or a percentage of the
// capacity.
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
	// oomUnlimited is the lowest value of oom_score_adj.
	oomUnlimited = -1000
)

// minOOMScore returns the lowest oom_score_adj that the kubelet may set for containers. If the
// kubelet lacks the capability to lower oom_score_adj, that is the kubelet's own value.
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

// nodeQOS returns the properties of the node from which the limits of pods and containers are
// computed.
func nodeQOS(c *kubeletconfig.KubeletConfiguration, m node.Machine, allocatable v1.ResourceList) (qos.Node, error) {
	n := qos.Node{
		Memory: m.Memory, CFSQuota: c.CPUCFSQuota == nil || *c.CPUCFSQuota, Period: c.CPUCFSQuotaPeriod.Duration,
		Unified: cgroup.Unified(cgroupMount), MinOOMScore: minOOMScore(), HugePages: slices.Sorted(maps.Keys(m.HugePages)),
		SingleProcessOOMKill: c.SingleProcessOOMKill != nil && *c.SingleProcessOOMKill,
	}
	if c.FailSwapOn == nil || *c.FailSwapOn {
		if m.Swap > 0 {
			return n, errors.New("running with swap on is not supported, please disable swap or set " +
				"failSwapOn to false in the configuration")
		}
	}
	switch c.MemorySwap.SwapBehavior {
	case "", "NoSwap":
	case "LimitedSwap":
		n.Swap.Limited = true
	default:
		return n, fmt.Errorf("memorySwap.swapBehavior %q is neither NoSwap nor LimitedSwap", c.MemorySwap.SwapBehavior)
	}
	n.Swap.Capacity, n.Swap.Controller = m.Swap, n.Unified && swapController()
	protection, err := memoryProtection(c, allocatable.Memory().Value())
	if n.Unified {
		n.Protection = protection
	}
	return n, err
}

// disabledFactor is the only memoryThrottlingFactor that is accepted if the feature gate MemoryQoS
// is off. Earlier versions of Kubernetes wrote it as the default, so existing configurations
// contain it.
const disabledFactor = 0.9

// memoryProtection returns the settings of Kubernetes' MemoryQoS feature, or an error if they are invalid.
// allocatable is the node's allocatable memory.
func memoryProtection(c *kubeletconfig.KubeletConfiguration, allocatable int64) (qos.Protection, error) {
	on, set := c.FeatureGates["MemoryQoS"]
	on = on || !set
	p := qos.Protection{Allocatable: allocatable}
	if f := c.MemoryThrottlingFactor; f != nil {
		switch {
		case !on && *f != disabledFactor:
			return p, errors.New("memoryThrottlingFactor must not be set when MemoryQoS feature gate is disabled")
		case *f <= 0 || *f > 1:
			return p, fmt.Errorf("memoryThrottlingFactor %v must be greater than 0 and less than or equal to 1.0", *f)
		}
		p.Throttling = *f
	}
	const none, tiered = kubeletconfig.NoneMemoryReservationPolicy, kubeletconfig.TieredReservationMemoryReservationPolicy
	switch c.MemoryReservationPolicy {
	case "", none:
	case tiered:
		if !on {
			return p, fmt.Errorf("memoryReservationPolicy %q requires MemoryQoS feature gate to be enabled", tiered)
		}
		p.Reserve = true
	default:
		return p, fmt.Errorf("option %q specified for memoryReservationPolicy. Valid options are %q or %q",
			c.MemoryReservationPolicy, none, tiered)
	}
	if !on {
		return qos.Protection{}, nil
	}
	return p, nil
}

// swapController reports whether the kernel accounts and limits the use of swap by cgroups. It
// looks for the limit in this process's cgroup, because the root cgroup has no limits.
func swapController() bool {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return false
	}
	_, path, _ := strings.Cut(strings.TrimSpace(string(b)), "::")
	_, err = os.Stat(filepath.Join(cgroupMount, path, "memory.swap.max"))
	return err == nil
}
