// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/keelson/pkg/kubelet/node"
	"keelson.dev/keelson/pkg/kubelet/qos"
)

// Values of enforceNodeAllocatable. Values that end in "compressible" limit only CPU.
const (
	enforceNone               = "none"
	enforcePods               = "pods"
	enforceSystem             = "system-reserved"
	enforceSystemCompressible = "system-reserved-compressible"
	enforceKube               = "kube-reserved"
	enforceKubeCompressible   = "kube-reserved-compressible"
)

// enforced holds the limits of cgroups that enforceNodeAllocatable requires.
type enforced struct {
	pods   *qos.PodLimits // limits of all pods together; nil if pods are not limited
	others map[string]qos.PodLimits
}

// enforce computes the limits of the cgroup of all pods together and of the cgroups of the system
// and Kubernetes.
func enforce(c *kubeletconfig.KubeletConfiguration, m node.Machine, r reserved) enforced {
	out := enforced{others: map[string]qos.PodLimits{}}
	for _, what := range c.EnforceNodeAllocatable {
		switch what {
		case enforcePods:
			// The amounts that eviction keeps free are not subtracted from the limit of all pods.
			// The kubelet thus evicts pods before the kernel enforces this limit.
			limits := limitsOf(node.Allocatable(m.Capacity(maxPods(c, m.CPUs)), r.nodes), true)
			if pids, ok := r.nodes["pid"]; ok {
				limits.Pids = m.MaxPIDs - pids.Value()
			}
			out.pods = &limits
		case enforceSystem, enforceSystemCompressible:
			out.others[c.SystemReservedCgroup] = limitsOf(parsed(c.SystemReserved), what == enforceSystem)
		case enforceKube, enforceKubeCompressible:
			out.others[c.KubeReservedCgroup] = limitsOf(parsed(c.KubeReserved), what == enforceKube)
		}
	}
	return out
}

// checkEnforced validates the configuration of enforceNodeAllocatable.
func checkEnforced(c *kubeletconfig.KubeletConfiguration) error {
	known := []string{enforceNone, enforcePods, enforceSystem, enforceSystemCompressible, enforceKube,
		enforceKubeCompressible}
	for _, what := range c.EnforceNodeAllocatable {
		switch {
		case !slices.Contains(known, what):
			return fmt.Errorf("enforceNodeAllocatable: %q is not one of %s", what, strings.Join(known, ", "))
		case what == enforceNone && len(c.EnforceNodeAllocatable) > 1:
			return errors.New("enforceNodeAllocatable: none cannot be combined with other values")
		case strings.HasPrefix(what, enforceSystem) && c.SystemReservedCgroup == "":
			return fmt.Errorf("enforceNodeAllocatable: %s needs systemReservedCgroup", what)
		case strings.HasPrefix(what, enforceKube) && c.KubeReservedCgroup == "":
			return fmt.Errorf("enforceNodeAllocatable: %s needs kubeReservedCgroup", what)
		}
	}
	return nil
}

// limitsOf returns the limits of a cgroup that may use the resources in l. If all is false, only
// CPU is limited.
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

// parsed parses the quantities in list, which the function reservations has already validated.
func parsed(list map[string]string) v1.ResourceList {
	out := v1.ResourceList{}
	for name, text := range list {
		if q, err := resource.ParseQuantity(text); err == nil {
			out[v1.ResourceName(name)] = q
		}
	}
	return out
}
