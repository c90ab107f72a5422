// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	policyv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// fake is a model of the kernel's table. It fails the test on a change that the kernel would
// reject.
type fake struct {
	sets   map[string]setDef
	chains map[string]*chain
	in     map[string]map[element]bool
	guards gates[map[netip.Addr]string]
}

func newFake() *fake {
	return &fake{map[string]setDef{}, map[string]*chain{}, map[string]map[element]bool{},
		gates[map[netip.Addr]string]{{}, {}, {}, {}}}
}

func (f *fake) apply(t *rapid.T, ch Changes) {
	for _, d := range ch.Sets {
		if _, ok := f.sets[d.name]; ok {
			t.Fatalf("set %s is made twice", d.name)
		}
		f.sets[d.name], f.in[d.name] = d, map[element]bool{}
	}
	for _, c := range ch.Chains {
		for _, d := range c.sets() {
			if _, ok := f.sets[d.name]; !ok {
				t.Fatalf("chain %s has no set %s", c.name, d.name)
			}
		}
		f.chains[c.name] = c
	}
	for name, elements := range ch.Members {
		for e, there := range elements {
			if f.in[name] == nil || f.in[name][e] == there {
				t.Fatalf("%v in %s: is %v already, or no set", e, name, there)
			}
			f.in[name][e] = there
		}
	}
	for d, guards := range ch.Guards {
		for a, c := range guards {
			if c == "" {
				delete(f.guards[d], a)
			} else if f.guards[d][a] = c; f.chains[c] == nil {
				t.Fatalf("no chain %s", c)
			}
		}
	}
	for _, c := range ch.GoneChains {
		delete(f.chains, c)
	}
	for _, s := range ch.GoneSets {
		delete(f.sets, s)
		delete(f.in, s)
	}
	for d := range f.guards {
		for a, c := range f.guards[d] {
			if f.chains[c] == nil {
				t.Fatalf("%v is guarded by %s, which is gone", a, c)
			}
		}
	}
}

// packet is the first packet of a connection.
type packet struct {
	from, to netip.Addr
	protocol uint8
	port     uint16
	toNode   bool // true if the destination is the node itself
}

// passes reports whether the rules let a packet pass.
func (f *fake) passes(p packet) bool {
	if p.from == p.to || p.toNode && p.port == dnsPort && p.protocol != protocolSCTP {
		return true
	}
	return f.gate(entrance(Egress), p.from, p.to, p) && (p.toNode || f.gate(entrance(Ingress), p.to, p.from, p))
}

func (f *fake) gate(g gate, of, other netip.Addr, p packet) bool {
	c := f.chains[f.guards[g][of]]
	if c == nil {
		return true
	}
	v := c.otherwise
	i := slices.IndexFunc(c.terms, func(m term) bool {
		return f.has(m.peers, other, p) && f.has(m.ports, p.to, p) && f.has(m.named, p.to, p)
	})
	if i >= 0 {
		v = c.terms[i].verdict
	}
	switch v {
	case deny:
		return i < 0 && p.toNode
	case pass:
		return f.gate(passed(c.direction), of, other, p)
	}
	return true
}

func (f *fake) has(d setDef, a netip.Addr, p packet) bool {
	switch d.kind {
	case podsOf, nodesOf:
		return f.in[d.name][element{addr: a}]
	case portsOf:
		return f.in[d.name][element{a, p.protocol, p.port}]
	case blocks:
		for _, r := range d.ranges {
			if r.First.Is4() == a.Is4() && !a.Less(r.First) && !r.Last.Less(a) {
				return true
			}
		}
		return false
	case numbered:
		return slices.ContainsFunc(d.numbers, func(r portRange) bool {
			return r.protocol == p.protocol &&
				r.from <= p.port && p.port <= r.to
		})
	}
	return true
}

// world draws random API objects, whose fields have few different values.
type world struct{ *rapid.T }

func (w world) labels() map[string]string {
	return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b"}), rapid.SampledFrom([]string{"x", "y"}), 0,
		2).Draw(w.T, "labels")
}

func (w world) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: rapid.MapOfN(rapid.SampledFrom([]string{"a", "b"}),
		rapid.SampledFrom([]string{"x", "y"}), 0, 1).Draw(w.T, "match")}
	if rapid.IntRange(0, 3).Draw(w.T, "expressions") == 0 {
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{
			Key: "a", Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{"Exists",
				"DoesNotExist"}).Draw(w.T, "operator"),
		}}
	}
	return s
}

func (w world) maybe(what string) bool { return rapid.Bool().Draw(w.T, what) }

func (w world) protocol() corev1.Protocol {
	return rapid.SampledFrom([]corev1.Protocol{"TCP", "UDP", "SCTP"}).Draw(w.T, "protocol")
}

func (w world) pod(name types.NamespacedName) *Pod {
	p := &Pod{Name: name, Labels: w.labels(), Node: rapid.SampledFrom([]string{"here", "there"}).Draw(w.T, "node")}
	p.Local = p.Node == "here"
	for _, format := range []string{"10.0.0.%d", "fd00::%d"} {
		p.IPs = append(p.IPs, netip.MustParseAddr(fmt.Sprintf(format, rapid.IntRange(1, 9).Draw(w.T, "ip"))))
	}
	for range rapid.IntRange(0, 2).Draw(w.T, "ports") {
		p.Ports = append(p.Ports,
			Port{"web", protocolNumber(w.protocol()), uint16(rapid.IntRange(80, 82).Draw(w.T, "number"))})
	}
	return p
}

func (w world) ports() (out []networkingv1.NetworkPolicyPort) {
	for range rapid.IntRange(0, 2).Draw(w.T, "rules") {
		var p networkingv1.NetworkPolicyPort
		if w.maybe("with protocol") {
			p.Protocol = ptr.To(w.protocol())
		}
		switch rapid.IntRange(0, 3).Draw(w.T, "port") {
		case 0:
			p.Port = ptr.To(intstr.FromString("web"))
		case 1:
			p.Port = ptr.To(intstr.FromInt32(int32(rapid.IntRange(80, 82).Draw(w.T, "number"))))
		case 2:
			p.Port, p.EndPort = ptr.To(intstr.FromInt32(80)), ptr.To(int32(rapid.IntRange(80, 82).Draw(w.T, "end")))
		}
		out = append(out, p)
	}
	return out
}

func (w world) peers() (out []networkingv1.NetworkPolicyPeer) {
	for range rapid.IntRange(0, 2).Draw(w.T, "peers") {
		var p networkingv1.NetworkPolicyPeer
		switch rapid.IntRange(0, 3).Draw(w.T, "peer") {
		case 0:
			p.PodSelector = w.selector()
		case 1:
			p.NamespaceSelector = w.selector()
		case 2:
			p.PodSelector, p.NamespaceSelector = w.selector(), w.selector()
		case 3:
			p.IPBlock = &networkingv1.IPBlock{
				CIDR: rapid.SampledFrom([]string{"10.0.0.0/29", "0.0.0.0/0", "fd00::/125"}).Draw(w.T, "block")}
			if w.maybe("except") {
				p.IPBlock.Except = []string{rapid.SampledFrom([]string{"10.0.0.2/31", "fd00::4/127"}).Draw(w.T, "but")}
			}
		}
		out = append(out, p)
	}
	return out
}

func (w world) policy(name types.NamespacedName) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	np.Spec.PodSelector = *w.selector()
	np.Spec.PolicyTypes = rapid.SampledFrom([][]networkingv1.PolicyType{nil, {"Ingress"}, {"Egress"},
		{"Ingress", "Egress"}}).Draw(w.T, "types")
	for range rapid.IntRange(0, 2).Draw(w.T, "ingress") {
		np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: w.peers(), Ports: w.ports()})
	}
	for range rapid.IntRange(0, 2).Draw(w.T, "egress") {
		np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: w.peers(), Ports: w.ports()})
	}
	return np
}

// objects are the API objects from which the tables follow.
type objects struct {
	Cell
	pods     map[types.NamespacedName]*Pod
	policies map[types.NamespacedName]*networkingv1.NetworkPolicy
	cluster  map[string]*policyv1alpha2.ClusterNetworkPolicy
}

// step makes a random change of the objects and passes it to the index.
func (w world) step(o *objects, x *Index) {
	namespace := rapid.SampledFrom([]string{"n", "m"}).Draw(w.T, "namespace")
	name := types.NamespacedName{Namespace: namespace, Name: rapid.SampledFrom([]string{"1", "2", "3"}).Draw(w.T, "name")}
	switch rapid.IntRange(0, 10).Draw(w.T, "what") {
	case 0, 1:
		o.pods[name] = w.pod(name)
		// Remove other pods with the same address, because an address belongs to one pod.
		for n, p := range o.pods {
			if n != name && slices.ContainsFunc(p.IPs, func(a netip.Addr) bool { return slices.Contains(o.pods[name].IPs, a) }) {
				delete(o.pods, n)
				x.SetPod(n, nil)
			}
		}
		x.SetPod(name, o.pods[name])
	case 2:
		delete(o.pods, name)
		x.SetPod(name, nil)
	case 3, 4:
		o.policies[name] = w.policy(name)
		x.SetPolicy(name, compile(o.policies[name]))
	case 5:
		delete(o.policies, name)
		x.SetPolicy(name, nil)
	case 6:
		o.Namespaces[namespace] = w.labels()
		x.SetNamespace(namespace, o.Namespaces[namespace])
	case 7, 8:
		o.cluster[name.Name] = w.clusterPolicy(name.Name)
		// Ignore the error: rules with invalid parts have an effect too.
		p, _ := compileCluster(o.cluster[name.Name])
		x.SetClusterPolicy(name.Name, p)
	case 9:
		delete(o.cluster, name.Name)
		x.SetClusterPolicy(name.Name, nil)
	case 10:
		n := w.node()
		o.Nodes = slices.DeleteFunc(o.Nodes, func(old *Node) bool { return old.Name == n.Name })
		if !w.maybe("gone") {
			o.Nodes = append(o.Nodes, n)
			x.SetNode(n.Name, n)
		} else {
			x.SetNode(n.Name, nil)
		}
	}
}

// TestIndex makes random changes, and compares what the resulting tables decide with Explain, which
// uses only the API objects.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, x, f := world{t}, NewIndex(), newFake()
		o := &objects{
			pods: map[types.NamespacedName]*Pod{}, policies: map[types.NamespacedName]*networkingv1.NetworkPolicy{},
			cluster: map[string]*policyv1alpha2.ClusterNetworkPolicy{}, Cell: Cell{Namespaces: map[string]labels.Set{}},
		}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			w.step(o, x)
			if w.maybe("take") {
				f.apply(t, x.Take())
			}
		}
		f.apply(t, x.Take())
		again := newFake()
		again.apply(t, x.All())
		o.compare(t, f, again)

		for name := range o.pods {
			x.SetPod(name, nil)
		}
		f.apply(t, x.Take())
		left := len(f.sets) + len(f.chains)
		for _, guards := range f.guards {
			left += len(guards)
		}
		if left > 0 {
			t.Fatalf("left without pods: %v, %v, %v", f.sets, f.chains, f.guards)
		}
	})
}

func (o *objects) compare(t *rapid.T, tables ...*fake) {
	o.Policies, o.Cluster = slices.Collect(maps.Values(o.policies)), slices.Collect(maps.Values(o.cluster))
	ends := [2][]Party{
		{{Addr: netip.MustParseAddr("10.0.0.3")}, {Addr: netip.MustParseAddr("192.0.2.1")},
			{Addr: netip.MustParseAddr("192.0.2.2")}},
		{{Addr: netip.MustParseAddr("fd00::3")}, {Addr: netip.MustParseAddr("2001:db8::1")}},
	}
	for family := range ends {
		for _, p := range o.pods {
			ends[family] = slices.DeleteFunc(ends[family], func(e Party) bool { return e.Pod == nil && e.Addr == p.IPs[family] })
			ends[family] = append(ends[family], Party{p, p.IPs[family]})
		}
		for _, from := range ends[family] {
			for _, to := range ends[family] {
				for _, protocol := range []uint8{protocolTCP, protocolUDP, protocolSCTP} {
					for _, port := range []uint16{dnsPort, 80, 82} {
						o.comparePacket(t, Flow{from, to, protocol, port}, tables)
					}
				}
			}
		}
	}
}

// comparePacket compares the decisions about one packet. It ignores decisions that other nodes
// enforce, and packets that processes of this node send.
func (o *objects) comparePacket(t *rapid.T, f Flow, tables []*fake) {
	here := &Pod{Node: "here"}
	if o.onOwnNode(here, f.From) {
		return
	}
	want := Explain(f, o.Cell)
	for _, table := range tables {
		got := table.passes(packet{f.From.Addr, f.To.Addr, f.Protocol, f.Port, o.onOwnNode(here, f.To)})
		if got != allowedHere(want, f.From, f.To) {
			t.Fatalf("%+v → %+v, %d/%d: got %v, want %+v", f.From, f.To, f.Protocol, f.Port, got, want)
		}
	}
}

// allowedHere returns whether the policies of those pods that are on this node allow the flow.
func allowedHere(v Verdict, from, to Party) bool {
	egress := from.Pod == nil || !from.Pod.Local || v.Egress.Allowed()
	ingress := to.Pod == nil || !to.Pod.Local || v.Ingress.Allowed()
	return egress && ingress
}
