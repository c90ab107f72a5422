// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"fmt"
	"maps"
	"runtime"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"keelson.dev/api/quantity"
	"keelson.dev/keelson/pkg/kubelet/dra"
	"keelson.dev/keelson/pkg/kubelet/source"
)

// Reasons for rejecting pods, named as in Kubernetes.
const (
	reasonOSSelector = "PodOSSelectorNodeLabelDoesNotMatch"
	reasonOSField    = "PodOSNotSupported"
	reasonGroups     = "SupplementalGroupsPolicyNotSupported"
	reasonAppArmor   = "AppArmor"
	reasonAffinity   = "NodeAffinity"
	reasonTaints     = "TaintToleration"
	outOf            = "OutOf"
)

// Refusal is the reason why the node rejects a pod or refuses to resize it.
type Refusal struct {
	Reason, Message string
	// Detail is a short name of the reason why a resize can never be granted. It is used as the
	// value of a metric's label.
	Detail string
}

// Outdated reports whether the refusal depends on the node's labels or taints, which may be
// outdated. For example, a pod may require a label that was added to the node after the kubelet
// last read the node.
func (r *Refusal) Outdated() bool { return r.Reason == reasonAffinity || r.Reason == reasonTaints }

// Node holds the properties of the node that Check compares with a pod.
type Node struct {
	// Object is the Node as it was last read from the API. It is nil before the node is registered.
	Object *v1.Node
	// Allocatable holds the amounts that all pods together may request.
	Allocatable v1.ResourceList
	// AppArmor reports whether the kernel enforces AppArmor profiles.
	AppArmor bool
}

// Check returns why the pod cannot run on the node together with the other given pods, or nil if it
// can.
func Check(pod *v1.Pod, others []*v1.Pod, n Node) *Refusal {
	if os, ok := pod.Labels[v1.LabelOSStable]; ok && os != runtime.GOOS {
		return &Refusal{Reason: reasonOSSelector,
			Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if os := pod.Spec.OS; os != nil && string(os.Name) != runtime.GOOS {
		return &Refusal{Reason: reasonOSField, Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	if strictGroups(pod) && !supportsGroups(n.Object) {
		return &Refusal{Reason: reasonGroups,
			Message: fmt.Sprintf("SupplementalGroupsPolicy=%s is not supported in this node", v1.SupplementalGroupsPolicyStrict)}
	}
	if r := fits(pod, others, n.Allocatable); r != nil {
		return r
	}
	if n.Object != nil {
		if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n.Object); err != nil || !ok {
			return predicate(reasonAffinity, "node(s) didn't match Pod's node affinity/selector")
		}
		if pod.Spec.NodeName != "" && pod.Spec.NodeName != n.Object.Name {
			return predicate("NodeName", "node(s) didn't match the requested node name")
		}
	}
	if portsTaken(pod, others) {
		return predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
	}
	if n.Object != nil && !source.Static(pod) && repelled(pod, n.Object) {
		return predicate(reasonTaints, "node(s) had taints that the pod didn't tolerate")
	}
	if !n.AppArmor && wantsAppArmor(pod) {
		return &Refusal{Reason: reasonAppArmor, Message: "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
	}
	return nil
}

func predicate(name, why string) *Refusal {
	return &Refusal{Reason: name, Message: fmt.Sprintf("Predicate %s failed: %s", name, why)}
}

func strictGroups(pod *v1.Pod) bool {
	sc := pod.Spec.SecurityContext
	return sc != nil && sc.SupplementalGroupsPolicy != nil &&
		*sc.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict
}

func supportsGroups(n *v1.Node) bool {
	return n != nil && n.Status.Features != nil && n.Status.Features.SupplementalGroupsPolicy != nil &&
		*n.Status.Features.SupplementalGroupsPolicy
}

// repelled reports whether the node has a NoExecute taint that the pod does not tolerate.
func repelled(pod *v1.Pod, n *v1.Node) bool {
	_, found := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, pod.Spec.Tolerations,
		func(t *v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute }, true)
	return found
}

// wantsAppArmor reports whether any container of the pod requests an AppArmor profile other than
// Unconfined.
func wantsAppArmor(pod *v1.Pod) bool {
	if sc := pod.Spec.SecurityContext; sc != nil && confined(sc.AppArmorProfile) {
		return true
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			if c.SecurityContext != nil && confined(c.SecurityContext.AppArmorProfile) {
				return true
			}
			old := pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
			if old != "" && old != v1.DeprecatedAppArmorBetaProfileNameUnconfined {
				return true
			}
		}
	}
	return false
}

func confined(p *v1.AppArmorProfile) bool {
	return p != nil && p.Type != v1.AppArmorProfileTypeUnconfined
}

// fits compares the pod's requests with what the other pods leave of limits, resource by resource
// in Kubernetes' order. It returns a Refusal that names the first resource that does not suffice,
// or nil.
func fits(pod *v1.Pod, others []*v1.Pod, limits v1.ResourceList) *Refusal {
	if has, ok := limits[v1.ResourcePods]; ok && int64(len(others)) >= has.Value() {
		return insufficient(v1.ResourcePods, *resource.NewQuantity(1, resource.DecimalSI),
			*resource.NewQuantity(int64(len(others)), resource.DecimalSI), has)
	}
	used := v1.ResourceList{}
	for _, other := range others {
		for name, q := range requests(other) {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
	}
	want := requests(pod)
	for _, name := range inOrder(want) {
		ask, has, taken := want[name], limits[name], used[name]
		sum := taken.DeepCopy()
		sum.Add(ask)
		// If the node does not have the resource at all, something else provides it, such as a
		// resource claim.
		if _, known := limits[name]; known && !ask.IsZero() && sum.Cmp(has) > 0 {
			return insufficient(name, ask, taken, has)
		}
	}
	return nil
}

func insufficient(name v1.ResourceName, ask, taken, has resource.Quantity) *Refusal {
	return &Refusal{Reason: outOf + string(name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			name, amount(name, ask), amount(name, taken), amount(name, has))}
}

// inOrder returns the names of the resources in the order in which Kubernetes checks them: pods,
// CPU, memory, ephemeral storage, and then all other resources sorted by name.
func inOrder(l v1.ResourceList) []v1.ResourceName {
	first := []v1.ResourceName{v1.ResourcePods, v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	var rest []v1.ResourceName
	for name := range l {
		if !slices.Contains(first, name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	return append(first, rest...)
}

// requests returns the resources that a pod requests from the node. It leaves out extended
// resources that are provided by resource claims.
func requests(pod *v1.Pod) v1.ResourceList {
	if pod.Status.ExtendedResourceClaimStatus != nil {
		pod = pod.DeepCopy()
		for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for _, c := range list {
				maps.DeleteFunc(c.Resources.Requests, func(name v1.ResourceName, _ resource.Quantity) bool {
					return dra.Serves(pod, c.Name, name)
				})
			}
		}
	}
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
}

// amount returns a quantity in the unit that Kubernetes' messages use: millicores for CPU.
func amount(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return quantity.Milli(q)
	}
	return quantity.Value(q)
}

// port is a host port that a container requests.
type port struct {
	ip       string
	protocol v1.Protocol
	number   int32
}

const anyAddress = "0.0.0.0"

// hostPorts returns the host ports of a pod's main containers and sidecars. It ignores other init
// containers.
func hostPorts(pod *v1.Pod) []port {
	var out []port
	add := func(c *v1.Container) {
		for _, p := range c.Ports {
			if p.HostPort <= 0 {
				continue
			}
			want := port{p.HostIP, p.Protocol, p.HostPort}
			if want.ip == "" {
				want.ip = anyAddress
			}
			if want.protocol == "" {
				want.protocol = v1.ProtocolTCP
			}
			out = append(out, want)
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}

// portsTaken reports whether any pod in others uses a host port that the pod requests.
func portsTaken(pod *v1.Pod, others []*v1.Pod) bool {
	want := hostPorts(pod)
	if len(want) == 0 {
		return false
	}
	for _, other := range others {
		for _, taken := range hostPorts(other) {
			if slices.ContainsFunc(want, taken.conflicts) {
				return true
			}
		}
	}
	return false
}

func (p port) conflicts(o port) bool {
	return p.number == o.number && p.protocol == o.protocol && (p.ip == o.ip || p.ip == anyAddress || o.ip == anyAddress)
}
