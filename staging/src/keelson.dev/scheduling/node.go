// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Resources are amounts of what a node has and a pod asks for.
type Resources struct {
	MilliCPU         int64
	Memory           int64 // bytes
	EphemeralStorage int64 // bytes
	Pods             int64
	Scalar           map[v1.ResourceName]int64 // extended resources, huge pages ...
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

// HostPort is a port a pod takes of its node.
type HostPort struct {
	IP       string // "0.0.0.0" takes the port on all addresses
	Protocol v1.Protocol
	Port     int32
}

// Pod is a pod as the scheduler accounts for it.
type Pod struct {
	*v1.Pod
	// GroupKey is equal for pods of one Group.
	GroupKey string
	Requests Resources
	// NonZero are the requests with a small amount in place of none, so that
	// pods without requests are spread as well.
	NonZero   Resources
	HostPorts []HostPort
	Group     *Group
}

// Priority is the pod's priority; 0 when unset.
func (p *Pod) Priority() int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// Node is a node with what runs, or is about to run, on it.
type Node struct {
	*v1.Node
	// Index is the node's place in View.Nodes; it may change between calls.
	Index       int
	Generation  uint64 // changes with everything below
	Allocatable Resources
	Requested   Resources
	NonZero     Resources
	Pods        map[string]*Pod // by UID
	Ports       map[HostPort]int
	Images      map[string]int64 // sizes by normalised name
}

// NoDomain stands for the domain of nodes without the topology key.
const NoDomain = -1

// Topology says in which domain of one topology key each node is. It holds
// until nodes come, go or change their labels.
type Topology struct {
	Key string
	// Of is the domain of each node by its Index, or NoDomain.
	Of []int32
	// Domains is how many there are; they count from 0.
	Domains int
}

// PortFree tells whether p can be taken on the node.
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

// AnyIP stands for all addresses of a node in a HostPort.
const AnyIP = "0.0.0.0"

// Group is the set of pods in the cell that are alike to every (anti-)affinity
// term and spread constraint: same namespace, labels and inter-pod affinity,
// and all terminating or none.
type Group struct {
	Namespace   string
	Labels      labels.Set
	Terminating bool
	Affinity    Affinity
	// Nodes counts the group's pods on each node.
	Nodes map[*Node]int
}

// Affinity is a pod's compiled inter-pod affinity.
type Affinity struct {
	Required, RequiredAnti   []Term
	Preferred, PreferredAnti []Term
}

// Empty tells whether there is no term at all.
func (a *Affinity) Empty() bool {
	return len(a.Required)+len(a.RequiredAnti)+len(a.Preferred)+len(a.PreferredAnti) == 0
}

// TermKind is what a term is to its pod.
type TermKind int8

// The kinds of terms.
const (
	Required TermKind = iota
	RequiredAnti
	Preferred
	PreferredAnti
	TermKinds // how many there are
)

// Of returns the terms of a kind.
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

// HeldTerm is a term with the number of times pods on each node have it.
type HeldTerm struct {
	Term  *Term
	Nodes map[*Node]int
}

// Term is one compiled (anti-)affinity term.
type Term struct {
	// Key is equal for terms that are.
	Key               string
	Namespaces        map[string]bool
	NamespaceSelector labels.Selector // labels.Nothing() when unset
	Selector          labels.Selector
	TopologyKey       string
	Weight            int64 // of preferred terms
}

// Matches tells whether the term selects a pod with these labels. namespaceLabels
// gives the labels of a namespace.
func (t *Term) Matches(namespace string, podLabels labels.Set, namespaceLabels func(string) labels.Set) bool {
	if !t.Namespaces[namespace] && !t.NamespaceSelector.Matches(namespaceLabels(namespace)) {
		return false
	}
	return t.Selector.Matches(podLabels)
}
