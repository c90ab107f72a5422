// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Index computes the contents of the nftables table while pods, namespaces and policies change. It
// must be used by one goroutine only.
//
// An Index contains only the chains that protect pods of this node, and the sets that these chains use.
type Index struct {
	namespaces map[string]labels.Set
	pods       map[string]map[string]*Pod    // by namespace and name
	policies   map[string]map[string]*policy // by namespace and name
	nodes      map[string]*Node
	tiers      [2][]*clusterPolicy // policies of each tier, sorted by precedence

	undecided map[types.NamespacedName]bool // pods of this node whose chains must be computed again
	guards    map[types.NamespacedName]guard
	chains    map[string]*counted[*chain]
	sets      map[string]*set

	changes Changes
}

// guard contains the addresses of a pod of this node, and the chains that protect them. There is
// one chain for each gate, a map in which the rules look up addresses.
type guard struct {
	ips    []netip.Addr
	chains gates[string]
}

// gates contains one value for each gate. A gate is an nftables map in which the rules look up
// addresses of pods.
type gates[T any] [4]T

type counted[T any] struct {
	of   T
	refs int
}

// set is a set in use. members counts how many pods add each element, because two pods can have the
// same address for a short time.
type set struct {
	setDef
	refs    int
	members map[element]int
}

// Changes are the changes to be made to an nftables table that has all earlier changes.
type Changes struct {
	// Sets and Chains are the sets and chains to create; the sets come first. New sets of pods and
	// nodes are empty; Members has their elements.
	Sets   []setDef
	Chains []*chain
	// Members contains for each set the elements to add (true) and to delete (false).
	Members map[string]map[element]bool
	// Guards contains for each gate and address the name of the chain that protects the address from
	// now on, or "" if the address is not protected any more.
	Guards gates[map[netip.Addr]string]
	// GoneChains and GoneSets are the names of the chains and sets that are not used any more.
	GoneChains, GoneSets []string
}

// Empty reports whether there are no changes.
func (c *Changes) Empty() bool {
	for _, guards := range c.Guards {
		if len(guards) > 0 {
			return false
		}
	}
	return len(c.Sets)+len(c.Chains)+len(c.Members)+len(c.GoneChains)+len(c.GoneSets) == 0
}

// NewIndex returns an empty index.
func NewIndex() *Index {
	return &Index{
		namespaces: map[string]labels.Set{}, pods: map[string]map[string]*Pod{}, policies: map[string]map[string]*policy{},
		nodes: map[string]*Node{}, undecided: map[types.NamespacedName]bool{}, guards: map[types.NamespacedName]guard{},
		chains: map[string]*counted[*chain]{}, sets: map[string]*set{}, changes: newChanges(),
	}
}

func newChanges() Changes {
	return Changes{Members: map[string]map[element]bool{}}
}

// guard records the name of the chain that protects the pod address ip at the gate g (an nftables
// map in which the rules look up addresses). "" means that no chain protects the address there.
func (c *Changes) guard(g int, ip netip.Addr, chain string) {
	if c.Guards[g] == nil {
		c.Guards[g] = map[netip.Addr]string{}
	}
	c.Guards[g][ip] = chain
}

// SetPod adds or updates a pod. If p is nil, it deletes the pod.
func (x *Index) SetPod(name types.NamespacedName, p *Pod) {
	old := x.pods[name.Namespace][name.Name]
	if old != nil {
		x.contribute(old, -1)
	}
	put(x.pods, name, p)
	if p != nil {
		x.contribute(p, 1)
	}
	if old != nil && old.Local || p != nil && p.Local {
		x.undecided[name] = true
	}
}

// SetNamespace sets the labels of a namespace. If l is nil, it deletes the namespace.
func (x *Index) SetNamespace(name string, l labels.Set) {
	if old, ok := x.namespaces[name]; ok == (l != nil) && maps.Equal(old, l) {
		return
	}
	for _, p := range x.pods[name] {
		x.contribute(p, -1)
	}
	delete(x.namespaces, name)
	if l != nil {
		x.namespaces[name] = l
	}
	for _, p := range x.pods[name] {
		x.contribute(p, 1)
		if p.Local && len(x.tiers[adminTier])+len(x.tiers[baselineTier]) > 0 {
			x.undecided[p.Name] = true
		}
	}
}

// SetPolicy adds or updates a NetworkPolicy. If p is nil, it deletes the policy.
func (x *Index) SetPolicy(name types.NamespacedName, p *policy) {
	put(x.policies, name, p)
	for _, pod := range x.pods[name.Namespace] {
		if pod.Local {
			x.undecided[pod.Name] = true
		}
	}
}

// put sets or deletes a value in a map of maps. It deletes inner maps that become empty.
func put[T any](m map[string]map[string]*T, name types.NamespacedName, v *T) {
	in := m[name.Namespace]
	switch {
	case v != nil && in == nil:
		m[name.Namespace] = map[string]*T{name.Name: v}
	case v != nil:
		in[name.Name] = v
	default:
		delete(in, name.Name)
		if len(in) == 0 {
			delete(m, name.Namespace)
		}
	}
}

// contribute adds n to the counts of the pod's elements, in every set whose selector matches the
// pod.
func (x *Index) contribute(p *Pod, n int) {
	for _, s := range x.sets {
		if (s.kind == podsOf || s.kind == portsOf) && s.selector.matches(p, x.namespaces[p.Name.Namespace]) {
			x.count(s, s.of(p), n)
		}
	}
}

func (x *Index) count(s *set, elements []element, n int) {
	for _, e := range elements {
		before := s.members[e]
		s.members[e] += n
		if s.members[e] == 0 {
			delete(s.members, e)
		}
		if there := before+n > 0; there != (before > 0) {
			x.note(s.name, e, there)
		}
	}
}

// note records that an element must be added or deleted. If an earlier record, which Take has not
// returned yet, says the reverse, note drops it instead.
func (x *Index) note(set string, e element, there bool) {
	m := x.changes.Members[set]
	if m == nil {
		m = map[element]bool{}
		x.changes.Members[set] = m
	}
	if was, ok := m[e]; ok && was != there {
		delete(m, e)
		if len(m) == 0 {
			delete(x.changes.Members, set)
		}
		return
	}
	m[e] = there
}

// Take returns the changes since the last call of Take, and clears them.
func (x *Index) Take() Changes {
	for len(x.undecided) > 0 {
		todo := x.undecided
		x.undecided = map[types.NamespacedName]bool{}
		for name := range todo {
			x.decide(name)
		}
	}
	x.collect()
	out := x.changes
	x.changes = newChanges()
	return out
}

// decide computes the chains of a pod of this node from the policies, and records the changes.
func (x *Index) decide(name types.NamespacedName) {
	old := x.guards[name]
	var want guard
	if p := x.pods[name.Namespace][name.Name]; p != nil && p.Local {
		want.ips = p.IPs
		for _, d := range []Direction{Ingress, Egress} {
			x.guard(p, d, &want)
		}
	}
	for g, c := range old.chains {
		if c == "" {
			continue
		}
		x.chains[c].refs--
		for _, ip := range old.ips {
			if want.chains[g] == "" || !slices.Contains(want.ips, ip) {
				x.changes.guard(g, ip, "")
				x.others(name, ip)
			}
		}
	}
	for g, c := range want.chains {
		for _, ip := range want.ips {
			if c != "" {
				x.changes.guard(g, ip, c)
			}
		}
	}
	delete(x.guards, name)
	if want.chains != (gates[string]{}) {
		x.guards[name] = want
	}
}

// guard sets the chains that protect a pod in a direction: the chain of its NetworkPolicies or, if
// none isolates it, the chain of the Baseline tier. If the Admin tier has rules for the pod, their
// chain comes first.
func (x *Index) guard(p *Pod, d Direction, g *guard) {
	at := entrance(d)
	if terms := x.clusterTerms(adminTier, p, d); len(terms) > 0 {
		g.chains[at] = x.use(newChain(d, terms, pass))
		at = passed(d)
	}
	if terms, isolated := x.terms(p, d); isolated {
		g.chains[at] = x.use(newChain(d, terms, deny))
	} else if terms := x.clusterTerms(baselineTier, p, d); len(terms) > 0 {
		g.chains[at] = x.use(newChain(d, terms, allow))
	}
}

// others marks the other pods of this node with the same address as undecided, so that they get the
// address back.
func (x *Index) others(than types.NamespacedName, ip netip.Addr) {
	for name, g := range x.guards {
		if name != than && slices.Contains(g.ips, ip) {
			x.undecided[name] = true
		}
	}
}

// terms returns the terms (conditions on allowed connections) of all NetworkPolicies that isolate a
// pod in a direction. isolated reports whether there are such policies.
func (x *Index) terms(p *Pod, d Direction) (out []term, isolated bool) {
	in := x.policies[p.Name.Namespace]
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if np := in[name]; np.isolates[d] && np.pods.Matches(p.Labels) {
			isolated = true
			out = append(out, np.terms[d]...)
		}
	}
	return out, isolated
}

// use adds a reference to a chain. It creates the chain, and the sets that the chain uses, if they
// do not exist.
func (x *Index) use(c *chain) string {
	if have := x.chains[c.name]; have != nil {
		have.refs++
		return c.name
	}
	for _, d := range c.sets() {
		s := x.sets[d.name]
		if s == nil {
			s = &set{setDef: d}
			x.sets[d.name] = s
			x.changes.Sets = append(x.changes.Sets, d)
			x.fill(s)
		}
		s.refs++
	}
	x.chains[c.name] = &counted[*chain]{of: c, refs: 1}
	x.changes.Chains = append(x.changes.Chains, c)
	return c.name
}

// fill adds all pods or nodes that match a new set to the set.
func (x *Index) fill(s *set) {
	if !s.kind.kept() {
		return
	}
	s.members = map[element]int{}
	if s.kind == nodesOf {
		for _, n := range x.nodes {
			x.contributeNode(s, n, 1)
		}
		return
	}
	for namespace, pods := range x.pods {
		for _, p := range pods {
			if s.selector.matches(p, x.namespaces[namespace]) {
				x.count(s, s.of(p), 1)
			}
		}
	}
}

// collect drops the chains and sets that have no references.
func (x *Index) collect() {
	for name, c := range x.chains {
		if c.refs > 0 {
			continue
		}
		delete(x.chains, name)
		x.changes.GoneChains = append(x.changes.GoneChains, name)
		for _, d := range c.of.sets() {
			s := x.sets[d.name]
			if s.refs--; s.refs == 0 {
				delete(x.sets, d.name)
				delete(x.changes.Members, d.name)
				x.changes.GoneSets = append(x.changes.GoneSets, d.name)
			}
		}
	}
}

// All returns the whole contents as the changes that create them in an empty table.
func (x *Index) All() Changes {
	x.Take()
	out := newChanges()
	for _, name := range slices.Sorted(maps.Keys(x.sets)) {
		s := x.sets[name]
		out.Sets = append(out.Sets, s.setDef)
		if len(s.members) > 0 {
			m := make(map[element]bool, len(s.members))
			for e := range s.members {
				m[e] = true
			}
			out.Members[name] = m
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.chains)) {
		out.Chains = append(out.Chains, x.chains[name].of)
	}
	for _, name := range slices.SortedFunc(maps.Keys(x.guards), compareNames) {
		for g, c := range x.guards[name].chains {
			for _, ip := range x.guards[name].ips {
				if c != "" {
					out.guard(g, ip, c)
				}
			}
		}
	}
	return out
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
