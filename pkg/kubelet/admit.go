// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/keelson/pkg/kubelet/eviction"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// admit refuses a pod that cannot run here, whoever bound it.
func (k *Kubelet) admit(pod *v1.Pod) *status.Verdict {
	if started(pod) {
		return nil // it ran here before the kubelet's restart
	}
	if why := k.eviction.Refuses(pod); why != "" {
		return refuse(eviction.Reason, why)
	}
	if v := k.fits(pod); v != nil {
		return v
	}
	n := k.node.Current()
	if n == nil {
		return nil
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n); err != nil || !ok {
		return refuse("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
	}
	if os := pod.Spec.OS; os != nil && string(os.Name) != n.Labels[v1.LabelOSStable] {
		return refuse("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
	}
	if pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers {
		return refuse("UserNamespacesNotSupported", "user namespaces are not supported on this node")
	}
	return nil
}

// started tells whether something of the pod has run already.
func started(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c v1.ContainerStatus) bool { return c.ContainerID != "" }) ||
		slices.ContainsFunc(pod.Status.InitContainerStatuses, func(c v1.ContainerStatus) bool { return c.ContainerID != "" })
}

func refuse(reason, message string) *status.Verdict {
	return &status.Verdict{Phase: v1.PodFailed, Reason: reason, Message: "Pod was rejected: " + message}
}

// fits compares what the pod asks for with what the others leave.
func (k *Kubelet) fits(pod *v1.Pod) *status.Verdict {
	used := v1.ResourceList{v1.ResourcePods: *resource.NewQuantity(0, resource.DecimalSI)}
	for _, other := range k.sources.all() {
		if other.UID == pod.UID || other.Status.Phase == v1.PodFailed || other.Status.Phase == v1.PodSucceeded {
			continue
		}
		add(used, requests(other))
	}
	want := requests(pod)
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, string(name))
	}
	slices.Sort(names)
	for _, n := range names {
		name := v1.ResourceName(n)
		ask, has, taken := want[name], k.limits[name], used[name]
		sum := taken.DeepCopy()
		sum.Add(ask)
		if _, known := k.limits[name]; !known || ask.IsZero() || sum.Cmp(has) <= 0 {
			continue
		}
		return refuse("OutOf"+n, fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			n, amount(name, ask), amount(name, taken), amount(name, has)))
	}
	return nil
}

func requests(pod *v1.Pod) v1.ResourceList {
	list := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true})
	list[v1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return list
}

func add(to, list v1.ResourceList) {
	for name, q := range list {
		sum := to[name]
		sum.Add(q)
		to[name] = sum
	}
}

// amount is a quantity as Kubernetes' messages count it: CPU in thousandths.
func amount(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// reservations are what of the capacity pods do not get.
func reservations(c *kubeletconfig.KubeletConfiguration, capacity v1.ResourceList) ([]v1.ResourceList, error) {
	var out []v1.ResourceList
	for field, list := range map[string]map[string]string{"kubeReserved": c.KubeReserved, "systemReserved": c.SystemReserved} {
		r := v1.ResourceList{}
		for name, text := range list {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("%s.%s: %w", field, name, err)
			}
			r[v1.ResourceName(name)] = q
		}
		out = append(out, r)
	}
	kept := v1.ResourceList{}
	for signal, name := range map[string]v1.ResourceName{"memory.available": v1.ResourceMemory, "nodefs.available": v1.ResourceEphemeralStorage} {
		text, ok := c.EvictionHard[signal]
		if !ok {
			continue
		}
		q, err := threshold(text, capacity[name])
		if err != nil {
			return nil, fmt.Errorf("evictionHard.%s: %w", signal, err)
		}
		kept[name] = q
	}
	return append(out, kept), nil
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
