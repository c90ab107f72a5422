// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/proxy/ruleset"
)

func ptr[T any](v T) *T { return &v }

// slice returns an EndpointSlice with one endpoint for each word. A word is the last number of the
// address, followed by letters: r for ready, s for serving, t for terminating, h for an endpoint on
// this node. z and y are hints for this node's zone and another zone, n and m hints for this node
// and another node.
func slice(words ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(8080)),
			Protocol: ptr(corev1.ProtocolTCP)}},
	}
	for _, w := range words {
		digits := strings.TrimRight(w, "rsthzynm")
		has := func(c string) bool { return strings.Contains(w[len(digits):], c) }
		e := discoveryv1.Endpoint{
			Addresses:  []string{"10.244.0." + digits},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr(has("r")), Serving: ptr(has("s")), Terminating: ptr(has("t"))},
			NodeName:   ptr("elsewhere"), Hints: &discoveryv1.EndpointHints{},
		}
		if has("h") {
			e.NodeName = ptr("here")
		}
		for c, zone := range map[string]string{"z": "zone", "y": "other"} {
			if has(c) {
				e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: zone})
			}
		}
		for c, node := range map[string]string{"n": "here", "m": "other"} {
			if has(c) {
				e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: node})
			}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func svc(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

const local = corev1.ServiceExternalTrafficPolicyLocal

func loadBalancer(s *corev1.Service) {
	s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, local
	s.Spec.Ports[0].NodePort, s.Spec.HealthCheckNodePort = 30080, 30081
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
}

// decide calls Decide with API objects.
func decide(s *corev1.Service, list []*discoveryv1.EndpointSlice, n Node) Plan {
	var kept []*Slice
	for _, e := range list {
		e.Labels = maps.Clone(e.Labels)
		if e.Labels == nil {
			e.Labels = map[string]string{}
		}
		e.Labels[discoveryv1.LabelServiceName] = s.Name
		if k := NewSlice(e, n.Name); k != nil {
			kept = append(kept, k)
		}
	}
	return Decide(New(s), kept, n)
}

// the returns the only port of a plan in an IP family, or nil. It clears the port's unexported
// fields.
func the(p Plan, f ruleset.Family) *ruleset.Port {
	if port := p.Port(f, "ns/web:http/TCP"); port != nil {
		return port.Port
	}
	return nil
}

// numbers returns the last numbers of the endpoints' addresses.
func numbers(list ruleset.Endpoints) string {
	var out []string
	for e := range list.All() {
		out = append(out, strconv.Itoa(int(e.Addr().As4()[3])))
	}
	return strings.Join(out, " ")
}

func TestEndpoints(t *testing.T) {
	internalLocal := func(s *corev1.Service) {
		s.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
	}
	tests := map[string]struct {
		reason         string
		change         func(*corev1.Service)
		slices         []*discoveryv1.EndpointSlice
		cluster, local string
		nowhere        bool
	}{
		"Ready": {reason: "only ready ones are used",
			slices: []*discoveryv1.EndpointSlice{slice("1rs", "2s", "3st", "4rs")}, cluster: "1 4"},
		"Fallback": {reason: "serving and terminating if none is ready",
			slices: []*discoveryv1.EndpointSlice{slice("1t", "2s", "3st")}, cluster: "3"},
		"None": {reason: "terminating ones that no longer serve are none",
			slices: []*discoveryv1.EndpointSlice{slice("1t", "2s")}, nowhere: true},
		"NoSlices": {reason: "a service without slices", nowhere: true},
		"Unready": {reason: "publishNotReadyAddresses makes endpoints ready",
			slices: []*discoveryv1.EndpointSlice{slice("1r")}, cluster: "1"},
		"SeveralSlices": {reason: "slices add up, each address once",
			slices: []*discoveryv1.EndpointSlice{slice("2rs", "1rs"), slice("3rs", "1rs")}, cluster: "1 2 3"},
		"ReadyInOneSlice": {reason: "an endpoint that moves between slices is ready if one says so",
			slices: []*discoveryv1.EndpointSlice{slice("1"), slice("1rs")}, cluster: "1"},
		"Zone": {reason: "hints for our zone are followed",
			slices: []*discoveryv1.EndpointSlice{slice("1rsz", "2rsy", "3rszy")}, cluster: "1 3"},
		"ZoneNotAllHinted": {reason: "one ready endpoint without hint: hints are being changed",
			slices: []*discoveryv1.EndpointSlice{slice("1rsz", "2rs")}, cluster: "1 2"},
		"ZoneUnreadyUnhinted": {reason: "hints of those that are not ready do not matter",
			slices: []*discoveryv1.EndpointSlice{slice("1rsz", "2rsy", "3s")}, cluster: "1"},
		"ZoneNotOurs": {reason: "nobody for our zone",
			slices: []*discoveryv1.EndpointSlice{slice("1rsy", "2rsy")}, cluster: "1 2"},
		"Node": {reason: "hints for this node come before those for the zone",
			slices: []*discoveryv1.EndpointSlice{slice("1rszn", "2rszm")}, cluster: "1"},
		"NodeThenZone": {reason: "nobody for this node: the zone",
			slices: []*discoveryv1.EndpointSlice{slice("1rszm", "2rsym")}, cluster: "1"},
		"InternalLocal": {reason: "policy Local uses this node's", change: internalLocal,
			slices: []*discoveryv1.EndpointSlice{slice("1rsh", "2rs")}, local: "1"},
		"InternalLocalNone": {reason: "there are some, but not here", change: internalLocal,
			slices: []*discoveryv1.EndpointSlice{slice("2rs")}},
		"InternalLocalHints": {reason: "policy Local does not know hints", change: internalLocal,
			slices: []*discoveryv1.EndpointSlice{slice("1rshy", "2rsz")}, local: "1"},
		"ExternalLocal": {reason: "both lists", change: loadBalancer,
			slices: []*discoveryv1.EndpointSlice{slice("1rsh", "2rs")}, cluster: "1 2", local: "1"},
		"ExternalLocalFalls": {reason: "each list falls back for itself", change: loadBalancer,
			slices: []*discoveryv1.EndpointSlice{slice("1sth", "2rs")}, cluster: "2", local: "1"},
		"ExternalLocalUnused": {reason: "a cluster IP only has no external policy",
			change: func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = local },
			slices: []*discoveryv1.EndpointSlice{slice("1rsh", "2rs")}, cluster: "1 2"},
		"HeadlessSliceIgnored": {reason: "slices of headless services are not ours",
			slices: []*discoveryv1.EndpointSlice{headless(slice("1rs"))}, nowhere: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := the(decide(svc(tt.change), tt.slices, Node{Name: "here", Zone: "zone"}), ruleset.IPv4)
			if p == nil {
				t.Fatal("no port")
			}
			if got := numbers(p.Cluster); got != tt.cluster {
				t.Errorf("%s: cluster list %q, want %q", tt.reason, got, tt.cluster)
			}
			if got := numbers(p.Local); got != tt.local {
				t.Errorf("%s: local list %q, want %q", tt.reason, got, tt.local)
			}
			if p.Anywhere == tt.nowhere {
				t.Errorf("%s: anywhere is %v", tt.reason, p.Anywhere)
			}
		})
	}
}

func headless(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.Labels = map[string]string{corev1.IsHeadlessService: ""}
	return s
}

func TestPort(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	base := func(change func(*ruleset.Port)) *ruleset.Port {
		p := &ruleset.Port{VIP: ruleset.Frontend{Addr: addr("10.96.0.1"), Protocol: ruleset.TCP, Port: 80},
			Created: metav1.Time{}.Unix()}
		if change != nil {
			change(p)
		}
		return p
	}
	tests := map[string]struct {
		reason string
		change func(*corev1.Service)
		node   Node
		want   *ruleset.Port
	}{
		"ClusterIP": {reason: "a cluster IP and nothing else", want: base(nil)},
		"Headless": {reason: "no cluster IP",
			change: func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} }},
		"OtherProxy": {reason: "for another proxy",
			change: func(s *corev1.Service) { s.Labels = map[string]string{labelProxyName: "other"} }},
		"ExternalName": {reason: "a name has no proxy",
			change: func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }},
		"External": {
			reason: "external addresses of the family, each once, and not the cluster IP",
			change: func(s *corev1.Service) {
				s.Spec.ExternalIPs = []string{"192.0.2.1", "192.0.2.1", "10.96.0.1", "2001:db8::1", "what"}
			},
			want: base(func(p *ruleset.Port) { p.External = []netip.Addr{addr("192.0.2.1")} }),
		},
		"LoadBalancer": {
			reason: "ingress addresses and source ranges",
			change: func(s *corev1.Service) {
				loadBalancer(s)
				s.Spec.LoadBalancerSourceRanges = []string{" 203.0.113.0/24 ", "2001:db8::/32"}
				s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
					corev1.LoadBalancerIngress{IP: "198.51.100.2", IPMode: ptr(corev1.LoadBalancerIPModeProxy)},
					corev1.LoadBalancerIngress{Hostname: "lb"})
			},
			want: base(func(p *ruleset.Port) {
				p.NodePort, p.ExternalLocal = 30080, true
				p.External, p.Guarded = []netip.Addr{addr("198.51.100.1")}, []netip.Addr{addr("198.51.100.1")}
				p.Sources = []netip.Prefix{prefix("203.0.113.0/24")}
			}),
		},
		"SourcesOfNode": {
			reason: "a node in the ranges may come from the balancer's address",
			change: func(s *corev1.Service) {
				loadBalancer(s)
				s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
			},
			node: Node{IPs: []netip.Addr{addr("203.0.113.9")}},
			want: base(func(p *ruleset.Port) {
				p.NodePort, p.ExternalLocal = 30080, true
				p.External, p.Guarded = []netip.Addr{addr("198.51.100.1")}, []netip.Addr{addr("198.51.100.1")}
				p.Sources = []netip.Prefix{prefix("203.0.113.0/24"), prefix("198.51.100.1/32")}
			}),
		},
		"SourcesAll": {
			reason: "a range of everything is no restriction",
			change: func(s *corev1.Service) {
				loadBalancer(s)
				s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24", "0.0.0.0/0"}
			},
			want: base(func(p *ruleset.Port) {
				p.NodePort, p.ExternalLocal = 30080, true
				p.External, p.Guarded = []netip.Addr{addr("198.51.100.1")}, []netip.Addr{addr("198.51.100.1")}
			}),
		},
		"Sticky": {
			reason: "three hours unless said otherwise",
			change: func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
			want:   base(func(p *ruleset.Port) { p.Sticky = 10800 }),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := the(decide(svc(tt.change), nil, tt.node), ruleset.IPv4)
			if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
				cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
				cmp.Comparer(func(a, b ruleset.Endpoints) bool { return a == b }), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	plan := decide(svc(loadBalancer), []*discoveryv1.EndpointSlice{slice("1rsh", "2rs", "3sth", "4rsh")},
		Node{Name: "here"})
	if diff := cmp.Diff(&Health{Port: 30081, Local: 2}, plan.Health); diff != "" {
		t.Error(diff)
	}
	if plan := decide(svc(nil), nil, Node{}); plan.Health != nil {
		t.Error("a health check of a service that asks for none")
	}
}

func TestDualStack(t *testing.T) {
	s := svc(func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.96.0.1", "fd96::1"} })
	six := slice()
	six.AddressType = discoveryv1.AddressTypeIPv6
	six.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"fd44::1"}}}
	plan := decide(s, []*discoveryv1.EndpointSlice{slice("1rs"), six}, Node{})
	if got := numbers(the(plan, ruleset.IPv4).Cluster); got != "1" {
		t.Errorf("IPv4: %s", got)
	}
	if got := slices.Collect(the(plan, ruleset.IPv6).Cluster.All()); len(got) != 1 || got[0].String() != "[fd44::1]:8080" {
		t.Errorf("IPv6: %v", got)
	}
}
