// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"fmt"
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
)

// fake is a table that does what the kernel would. It fails where the kernel would refuse.
type fake struct {
	sets   map[string]setDef
	chains map[string]*chain
	in     map[string]map[element]bool
	guards [2]map[netip.Addr]string
}

func newFake() *fake {
	return &fake{map[string]setDef{}, map[string]*chain{}, map[string]map[element]bool{}, [2]map[netip.Addr]string{{}, {}}}
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

// passes walks a packet through the rules.
func (f *fake) passes(from, to netip.Addr, protocol uint8, port uint16) bool {
	return from == to || f.side(Egress, from, to, to, protocol, port) && f.side(Ingress, to, from, to, protocol, port)
}

func (f *fake) side(d Direction, of, other, to netip.Addr, protocol uint8, port uint16) bool {
	c := f.chains[f.guards[d][of]]
	return c == nil || slices.ContainsFunc(c.terms, func(m term) bool {
		return f.has(m.peers, other, protocol, port) && f.has(m.ports, to, protocol, port) && f.has(m.named, to, protocol, port)
	})
}

func (f *fake) has(d setDef, a netip.Addr, protocol uint8, port uint16) bool {
	switch d.kind {
	case podsOf:
		return f.in[d.name][element{addr: a}]
	case portsOf:
		return f.in[d.name][element{a, protocol, port}]
	case blocks:
		for _, r := range d.ranges {
			if r.First.Is4() == a.Is4() && !a.Less(r.First) && !r.Last.Less(a) {
				return true
			}
		}
		return false
	case numbered:
		return slices.ContainsFunc(d.numbers, func(r portRange) bool { return r.protocol == protocol && r.from <= port && port <= r.to })
	}
	return true
}

// world draws small random objects.
type world struct{ *rapid.T }

func (w world) labels() map[string]string {
	return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b"}), rapid.SampledFrom([]string{"x", "y"}), 0, 2).Draw(w.T, "labels")
}

func (w world) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: rapid.MapOfN(rapid.SampledFrom([]string{"a", "b"}), rapid.SampledFrom([]string{"x", "y"}), 0, 1).Draw(w.T, "match")}
	if rapid.IntRange(0, 3).Draw(w.T, "expressions") == 0 {
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{
			Key: "a", Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{"Exists", "DoesNotExist"}).Draw(w.T, "operator"),
		}}
	}
	return s
}

func (w world) maybe(what string) bool { return rapid.Bool().Draw(w.T, what) }

func (w world) protocol() corev1.Protocol {
	return rapid.SampledFrom([]corev1.Protocol{"TCP", "UDP", "SCTP"}).Draw(w.T, "protocol")
}

func (w world) pod(name types.NamespacedName) *Pod {
	p := &Pod{Name: name, Labels: w.labels(), Local: w.maybe("local")}
	for _, format := range []string{"10.0.0.%d", "fd00::%d"} {
		p.IPs = append(p.IPs, netip.MustParseAddr(fmt.Sprintf(format, rapid.IntRange(1, 9).Draw(w.T, "ip"))))
	}
	for range rapid.IntRange(0, 2).Draw(w.T, "ports") {
		p.Ports = append(p.Ports, Port{"web", protocolNumber(w.protocol()), uint16(rapid.IntRange(80, 82).Draw(w.T, "number"))})
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
			p.IPBlock = &networkingv1.IPBlock{CIDR: rapid.SampledFrom([]string{"10.0.0.0/29", "0.0.0.0/0", "fd00::/125"}).Draw(w.T, "block")}
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
	np.Spec.PolicyTypes = rapid.SampledFrom([][]networkingv1.PolicyType{nil, {"Ingress"}, {"Egress"}, {"Ingress", "Egress"}}).Draw(w.T, "types")
	for range rapid.IntRange(0, 2).Draw(w.T, "ingress") {
		np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: w.peers(), Ports: w.ports()})
	}
	for range rapid.IntRange(0, 2).Draw(w.T, "egress") {
		np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: w.peers(), Ports: w.ports()})
	}
	return np
}

// TestIndex has tables that follow random changes judge packets as Explain does, which looks at the
// objects alone.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, x, f := world{t}, NewIndex(), newFake()
		pods, policies, namespaces := map[types.NamespacedName]*Pod{}, map[types.NamespacedName]*networkingv1.NetworkPolicy{}, map[string]labels.Set{}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			namespace := rapid.SampledFrom([]string{"n", "m"}).Draw(t, "namespace")
			name := types.NamespacedName{Namespace: namespace, Name: rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "name")}
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1:
				pods[name] = w.pod(name)
				for n, p := range pods { // an address is one pod's
					if n != name && slices.ContainsFunc(p.IPs, func(a netip.Addr) bool { return slices.Contains(pods[name].IPs, a) }) {
						delete(pods, n)
						x.SetPod(n, nil)
					}
				}
				x.SetPod(name, pods[name])
			case 2:
				delete(pods, name)
				x.SetPod(name, nil)
			case 3, 4:
				policies[name] = w.policy(name)
				x.SetPolicy(name, compile(policies[name]))
			case 5:
				delete(policies, name)
				x.SetPolicy(name, nil)
			case 6:
				namespaces[namespace] = w.labels()
				x.SetNamespace(namespace, namespaces[namespace])
			}
			if w.maybe("take") {
				f.apply(t, x.Take())
			}
		}
		f.apply(t, x.Take())
		again := newFake()
		again.apply(t, x.All())
		compare(t, pods, policies, namespaces, f, again)

		for name := range pods {
			x.SetPod(name, nil)
		}
		f.apply(t, x.Take())
		if len(f.sets)+len(f.chains)+len(f.guards[0])+len(f.guards[1]) > 0 {
			t.Fatalf("left without pods: %v, %v, %v", f.sets, f.chains, f.guards)
		}
	})
}

func compare(t *rapid.T, pods map[types.NamespacedName]*Pod, policies map[types.NamespacedName]*networkingv1.NetworkPolicy, namespaces map[string]labels.Set, tables ...*fake) {
	var all []*networkingv1.NetworkPolicy
	for _, np := range policies {
		all = append(all, np)
	}
	ends := [2][]Party{{{Addr: netip.MustParseAddr("10.0.0.3")}, {Addr: netip.MustParseAddr("192.0.2.1")}}, {{Addr: netip.MustParseAddr("fd00::3")}}}
	for family := range ends {
		for _, p := range pods {
			ends[family] = slices.DeleteFunc(ends[family], func(e Party) bool { return e.Pod == nil && e.Addr == p.IPs[family] })
			ends[family] = append(ends[family], Party{p, p.IPs[family]})
		}
		for _, from := range ends[family] {
			for _, to := range ends[family] {
				for _, protocol := range []uint8{6, 17, 132} {
					for _, port := range []uint16{79, 80, 82} {
						want := Explain(Flow{from, to, protocol, port}, all, namespaces)
						for _, f := range tables {
							if got := f.passes(from.Addr, to.Addr, protocol, port); got != allowedHere(want, from, to) {
								t.Fatalf("%+v → %+v, %d/%d: got %v, want %+v", from, to, protocol, port, got, want)
							}
						}
					}
				}
			}
		}
	}
}

// allowedHere leaves out what other nodes see to.
func allowedHere(v Verdict, from, to Party) bool {
	egress := from.Pod == nil || !from.Pod.Local || v.Egress.Allowed()
	ingress := to.Pod == nil || !to.Pod.Local || v.Ingress.Allowed()
	return egress && ingress
}
