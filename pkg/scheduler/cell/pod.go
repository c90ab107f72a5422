// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson.dev/scheduling"
)

// Scores use these amounts for a container without requests, as Kubernetes does
// (pkg/scheduler/util: DefaultMilliCPURequest, DefaultMemoryRequest).
const (
	defaultMilliCPU = 100
	defaultMemory   = 200 << 20
)

// NewPod compiles a pod and sets its group (the pods that affinity terms and spread constraints
// treat like it), as Compile and Join do.
func (c *Cell) NewPod(pod *v1.Pod) *scheduling.Pod {
	p := Compile(pod)
	c.Join(p)
	return p
}

// Compile computes what the scheduler needs to know about a pod, except its group (the pods that
// affinity terms and spread constraints treat like it).
func Compile(pod *v1.Pod) *scheduling.Pod {
	p := &scheduling.Pod{
		Pod:       pod,
		GroupKey:  groupKey(pod),
		Requests:  requests(pod, false),
		HostPorts: hostPorts(pod),
	}
	p.NonZero = p.Requests
	if !complete(pod) {
		p.NonZero = requests(pod, true)
	}
	return p
}

// Join sets the group of a pod: the group of placed pods with the same key, or a new group if there
// are no such pods. A selector in an affinity term that does not parse matches no pod; the API
// server rejects such terms.
func (c *Cell) Join(p *scheduling.Pod) {
	switch g := c.groups[p.GroupKey]; {
	case g != nil:
		p.Group, p.GroupKey = g, c.groupKeys[g] // use the group's copy of the key, to save memory
	case p.Group == nil || len(p.Group.Nodes) > 0:
		p.Group = newGroup(p.Pod)
	}
}

// requests returns a pod's requests, computed as in Kubernetes: the sum of the containers or the
// largest init container, whichever is more, plus overhead. Requests at pod level replace those of
// containers. If nonZero is true, containers without requests count with nonZeroRequests.
func requests(pod *v1.Pod, nonZero bool) scheduling.Resources {
	opts := resourcehelper.PodResourcesOptions{UseStatusResources: resized(pod),
		InPlacePodLevelResourcesVerticalScalingEnabled: true}
	if nonZero {
		opts.NonMissingContainerRequests = nonZeroRequests
	}
	r := FromList(resourcehelper.PodRequests(pod, opts))
	r.Pods = 1
	return r
}

// complete reports whether each container requests CPU and memory, so that the defaults for missing
// requests change nothing. A resize can remove requests, so complete is false for resized pods.
func complete(pod *v1.Pod) bool {
	lacks := func(c v1.Container) bool {
		_, cpu := c.Resources.Requests[v1.ResourceCPU]
		_, memory := c.Resources.Requests[v1.ResourceMemory]
		return !cpu || !memory
	}
	return !slices.ContainsFunc(pod.Spec.Containers, lacks) && !slices.ContainsFunc(pod.Spec.InitContainers, lacks) &&
		!resized(pod)
}

// resized returns true if the pod's status can change its requests: a kubelet has reported resources,
// or has rejected a resize. For all other pods, the scheduler adds up the containers once; with the
// status, it would add them up three times, with the same result.
func resized(pod *v1.Pod) bool {
	reported := func(s v1.ContainerStatus) bool { return s.Resources != nil || s.AllocatedResources != nil }
	return pod.Status.Resources != nil || pod.Status.AllocatedResources != nil ||
		slices.ContainsFunc(pod.Status.ContainerStatuses, reported) ||
		slices.ContainsFunc(pod.Status.InitContainerStatuses, reported) ||
		resourcehelper.IsPodResizeInfeasible(pod)
}

func hostPorts(pod *v1.Pod) []scheduling.HostPort {
	var ports []scheduling.HostPort
	add := func(c *v1.Container) {
		for _, p := range c.Ports {
			if p.HostPort <= 0 {
				continue
			}
			hp := scheduling.HostPort{IP: p.HostIP, Protocol: p.Protocol, Port: p.HostPort}
			if hp.IP == "" || hp.IP == "::" {
				hp.IP = scheduling.AnyIP
			}
			if hp.Protocol == "" {
				hp.Protocol = v1.ProtocolTCP
			}
			ports = append(ports, hp)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return ports
}

func newGroup(pod *v1.Pod) *scheduling.Group {
	return &scheduling.Group{
		Namespace: pod.Namespace, Labels: pod.Labels, Terminating: pod.DeletionTimestamp != nil,
		Affinity: compileAffinity(pod), Nodes: map[*scheduling.Node]int{},
	}
}

func groupKey(pod *v1.Pod) string {
	var b strings.Builder
	b.WriteString(pod.Namespace)
	if pod.DeletionTimestamp != nil {
		b.WriteString("\x00T")
	}
	keys := make([]string, 0, len(pod.Labels))
	for k := range pod.Labels {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		b.WriteString("\x00" + k + "=" + pod.Labels[k])
	}
	if a := pod.Spec.Affinity; a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil) {
		enc, err := json.Marshal([]any{a.PodAffinity, a.PodAntiAffinity})
		if err != nil {
			panic("cell: encode pod affinity: " + err.Error()) // plain data can always be encoded as JSON
		}
		b.WriteByte(0)
		b.Write(enc)
	}
	return b.String()
}

func compileAffinity(pod *v1.Pod) scheduling.Affinity {
	var out scheduling.Affinity
	a := pod.Spec.Affinity
	if a == nil {
		return out
	}
	if pa := a.PodAffinity; pa != nil {
		out.Required = compileTerms(pod, pa.RequiredDuringSchedulingIgnoredDuringExecution)
		out.Preferred = compileWeighted(pod, pa.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if pa := a.PodAntiAffinity; pa != nil {
		out.RequiredAnti = compileTerms(pod, pa.RequiredDuringSchedulingIgnoredDuringExecution)
		out.PreferredAnti = compileWeighted(pod, pa.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return out
}

func compileTerms(pod *v1.Pod, terms []v1.PodAffinityTerm) []scheduling.Term {
	var out []scheduling.Term
	for i := range terms {
		out = append(out, compileTerm(pod, &terms[i], 0))
	}
	return out
}

func compileWeighted(pod *v1.Pod, terms []v1.WeightedPodAffinityTerm) []scheduling.Term {
	var out []scheduling.Term
	for i := range terms {
		out = append(out, compileTerm(pod, &terms[i].PodAffinityTerm, int64(terms[i].Weight)))
	}
	return out
}

func compileTerm(pod *v1.Pod, t *v1.PodAffinityTerm, weight int64) scheduling.Term {
	out := scheduling.Term{
		Namespaces: map[string]bool{}, TopologyKey: t.TopologyKey, Weight: weight,
		Selector: selector(t.LabelSelector), NamespaceSelector: selector(t.NamespaceSelector),
	}
	for _, ns := range t.Namespaces {
		out.Namespaces[ns] = true
	}
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		out.Namespaces[pod.Namespace] = true
	}
	names := slices.Sorted(maps.Keys(out.Namespaces))
	out.Key = fmt.Sprintf("%q %v %q %v %q %q %d", names, t.NamespaceSelector != nil, out.NamespaceSelector,
		t.LabelSelector != nil, out.Selector, t.TopologyKey, weight)
	return out
}

// selector parses s. A nil s matches no pod.
func selector(s *metav1.LabelSelector) labels.Selector {
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return sel
}

// nonZeroRequests has the requests that scores assume for a container without requests.
var nonZeroRequests = v1.ResourceList{
	v1.ResourceCPU:    *resource.NewMilliQuantity(defaultMilliCPU, resource.DecimalSI),
	v1.ResourceMemory: *resource.NewQuantity(defaultMemory, resource.BinarySI),
}
