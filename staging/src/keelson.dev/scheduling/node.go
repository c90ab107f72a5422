// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Resources are amounts of resources: those that a node has, or those that a pod requests.
type Resources struct {
	MilliCPU         int64
	Memory           int64 // bytes
	EphemeralStorage int64 // bytes
	Pods             int64
	Scalar           map[v1.ResourceName]int64 // extended resources, huge pages
}

// Get returns the amount of one resource.
func (r *Resources) Get(name v1.ResourceName) int64 {
	switch name {
	case v1.ResourceCPU:
		return r.MilliCPU
	case v1.ResourceMemory:
		return r.Memory
	case v1.ResourceEphemeralStorage:
		return r.EphemeralStorage
	case v1.ResourcePods:
		return r.Pods
	}
	return r.Scalar[name]
}

// HostPort is a port of the node that a pod uses on the host network.
type HostPort struct {
	IP       string // AnyIP stands for all addresses
	Protocol v1.Protocol
	Port     int32
}

// Pod is an API pod, with values that the scheduler computed from its spec.
type Pod struct {
	*v1.Pod
	// GroupKey is the key of the Group that the pod belongs to.
	GroupKey string
	Requests Resources
	// NonZero is Requests plus a small amount of CPU and memory for each container that requests
	// none. Plugins compute scores with it, so that pods without requests are spread over the nodes
	// too.
	NonZero   Resources
	HostPorts []HostPort
	Group     *Group
}

// Priority returns the pod's priority, or 0 if it is unset.
func (p *Pod) Priority() int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// Node is a node with the pods that run on it and those that the scheduler has placed on it.
type Node struct {
	*v1.Node
	// Index is the node's index in View.Nodes. It may change when nodes are added or removed.
	Index       int
	Generation  uint64 // changes whenever another field changes
	Allocatable Resources
	Requested   Resources
	NonZero     Resources
	Pods        map[string]*Pod // pods on the node by UID
	Ports       map[HostPort]int
	Images      map[string]int64 // sizes in bytes, by image name with a tag
}

// NoDomain is the domain of a node that does not have the topology key.
const NoDomain = -1

// Topology is the assignment of nodes to domains (for example zones) by one topology key. It is
// valid until a node is added, removed or gets other labels.
type Topology struct {
	Key string
	// Of has the domain of each node, by Node.Index. The domain is NoDomain for nodes without the
	// key.
	Of []int32
	// Domains is the number of domains. The domains are numbered from 0.
	Domains int
}

// PortFree reports whether no pod on the node uses the port p. If one of two equal ports is on all
// addresses (AnyIP), they conflict whatever the other's address is.
func (n *Node) PortFree(p HostPort) bool {
	if n.Ports[p] > 0 || n.Ports[HostPort{AnyIP, p.Protocol, p.Port}] > 0 {
		return false
	}
	if p.IP != AnyIP {
		return true
	}
	for used, count := range n.Ports {
		if count > 0 && used.Port == p.Port && used.Protocol == p.Protocol {
			return false
		}
	}
	return true
}

// AnyIP is HostPort.IP for a port on all addresses of the node.
const AnyIP = "0.0.0.0"

// Group is a set of pods that every affinity term and every spread constraint treats in the same
// way: they have the same namespace, labels and inter-pod affinity, and either all or none of them
// are terminating.
type Group struct {
	Namespace   string
	Labels      labels.Set
	Terminating bool
	Affinity    Affinity
	// Nodes maps each node that has pods of the group to the number of these pods.
	Nodes map[*Node]int
}

// Affinity is the parsed inter-pod affinity of a pod.
type Affinity struct {
	Required, RequiredAnti   []Term
	Preferred, PreferredAnti []Term
}

// Empty reports whether the pod has no affinity terms.
func (a *Affinity) Empty() bool {
	return len(a.Required)+len(a.RequiredAnti)+len(a.Preferred)+len(a.PreferredAnti) == 0
}

// TermKind is the kind of an affinity term.
type TermKind int8

// The kinds of affinity terms.
const (
	Required TermKind = iota
	RequiredAnti
	Preferred
	PreferredAnti
	TermKinds // number of kinds
)

// Of returns the terms of one kind.
func (a *Affinity) Of(kind TermKind) []Term {
	switch kind {
	case Required:
		return a.Required
	case RequiredAnti:
		return a.RequiredAnti
	case Preferred:
		return a.Preferred
	case PreferredAnti:
		return a.PreferredAnti
	}
	return nil
}

// HeldTerm is an affinity term with the number of pods on each node that have this term.
type HeldTerm struct {
	Term  *Term
	Nodes map[*Node]int
}

// Term is one parsed affinity or anti-affinity term.
type Term struct {
	// Key identifies the term: equal terms have equal keys.
	Key               string
	Namespaces        map[string]bool
	NamespaceSelector labels.Selector // matches no namespace if unset
	Selector          labels.Selector
	TopologyKey       string
	Weight            int64 // weight of a preferred term, otherwise 0
}

// Matches reports whether the term selects a pod with these labels in this namespace.
// namespaceLabels returns the labels of a namespace.
func (t *Term) Matches(namespace string, podLabels labels.Set, namespaceLabels func(string) labels.Set) bool {
	if !t.Namespaces[namespace] && !t.NamespaceSelector.Matches(namespaceLabels(namespace)) {
		return false
	}
	return t.Selector.Matches(podLabels)
}
