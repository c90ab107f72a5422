// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

func TestRangeArithmetic(t *testing.T) {
	for prefix, want := range map[string]struct {
		hosts       uint64
		first, last string
	}{
		"10.96.0.0/16": {65534, "10.96.0.1", "10.96.255.254"},
		"10.0.0.0/30":  {2, "10.0.0.1", "10.0.0.2"},
		"fd00::/120":   {255, "fd00::1", "fd00::ff"},
	} {
		t.Run(prefix, func(t *testing.T) {
			r := netip.MustParsePrefix(prefix)
			if got := hosts(r); got != want.hosts {
				t.Fatalf("hosts = %d, want %d", got, want.hosts)
			}
			if a, b := nth(r, 0).String(), nth(r, hosts(r)-1).String(); a != want.first || b != want.last {
				t.Errorf("usable from %s to %s, want %s to %s", a, b, want.first, want.last)
			}
		})
	}
}

func TestEveryNthAddressIsUsable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(8, 30).Draw(t, "bits")
		r := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 2, 3}), bits).Masked()
		if n := hosts(r); !usable(r, nth(r, rapid.Uint64Range(0, n-1).Draw(t, "i"))) {
			t.Fatal("not usable")
		}
		if usable(r, nth(r, hosts(r))) {
			t.Fatal("the broadcast address is usable")
		}
	})
}

func TestFamilies(t *testing.T) {
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	single, prefer, require := corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack,
		corev1.IPFamilyPolicyRequireDualStack
	for name, tc := range map[string]struct {
		spec     corev1.ServiceSpec
		cluster  []corev1.IPFamily
		policy   corev1.IPFamilyPolicy
		families []corev1.IPFamily
		err      string
	}{
		"plain": {corev1.ServiceSpec{}, []corev1.IPFamily{v4}, single, []corev1.IPFamily{v4}, ""},
		"prefer dual on single": {corev1.ServiceSpec{IPFamilyPolicy: &prefer}, []corev1.IPFamily{v4},
			prefer, []corev1.IPFamily{v4}, ""},
		"prefer dual on dual": {corev1.ServiceSpec{IPFamilyPolicy: &prefer}, []corev1.IPFamily{v6, v4},
			prefer, []corev1.IPFamily{v6, v4}, ""},
		"headless without selector": {corev1.ServiceSpec{ClusterIP: "None", ClusterIPs: []string{"None"}},
			[]corev1.IPFamily{v4}, require, []corev1.IPFamily{v4, v6}, ""},
		"headless with selector": {corev1.ServiceSpec{ClusterIP: "None", ClusterIPs: []string{"None"},
			Selector: map[string]string{"a": "b"}}, []corev1.IPFamily{v4}, single, []corev1.IPFamily{v4}, ""},
		"family of the wanted IP": {
			corev1.ServiceSpec{ClusterIP: "fd00::9", ClusterIPs: []string{"fd00::9"}},
			[]corev1.IPFamily{v4, v6}, single, []corev1.IPFamily{v6}, ""},
		"require dual on single": {corev1.ServiceSpec{IPFamilyPolicy: &require}, []corev1.IPFamily{v4}, "",
			nil, `Service "" is invalid: spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this ` +
				`cluster is not configured for dual-stack services`},
		"family not configured": {corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{v6}},
			[]corev1.IPFamily{v4}, "", nil,
			`Service "" is invalid: spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`},
		"IP's family not configured": {
			corev1.ServiceSpec{ClusterIP: "fd00::1", ClusterIPs: []string{"fd00::1"}}, []corev1.IPFamily{v4},
			"", nil, `Service "" is invalid: spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is ` +
				`not configured on this cluster`},
	} {
		t.Run(name, func(t *testing.T) {
			svc := &corev1.Service{Spec: tc.spec}
			err := (&families{configured: tc.cluster, svc: svc}).decide()
			if got := errorText(err); got != tc.err {
				t.Fatalf("error %q, want %q", got, tc.err)
			}
			if err == nil && (*svc.Spec.IPFamilyPolicy != tc.policy || !equal(svc.Spec.IPFamilies, tc.families)) {
				t.Errorf("got %v %v, want %v %v", *svc.Spec.IPFamilyPolicy, svc.Spec.IPFamilies, tc.policy, tc.families)
			}
		})
	}
}

// TestReadyRanges checks that a ServiceCIDR is used unless its condition Ready says that it is not ready.
func TestReadyRanges(t *testing.T) {
	for name, tc := range map[string]struct {
		conditions []metav1.Condition
		want       bool
	}{
		"no condition":      {nil, true},
		"another condition": {[]metav1.Condition{{Type: "Accepted", Status: metav1.ConditionFalse}}, true},
		"ready":             {[]metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}, true},
		"not ready":         {[]metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse}}, false},
		"unknown":           {[]metav1.Condition{{Type: "Ready", Status: metav1.ConditionUnknown}}, false},
	} {
		o := &networkingv1.ServiceCIDR{Status: networkingv1.ServiceCIDRStatus{Conditions: tc.conditions}}
		if got := ready(o); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestSecondAddress checks the error if a client removes one of two addresses without changing
// ipFamilyPolicy to SingleStack, and that an unsupported policy is reported first.
func TestSecondAddress(t *testing.T) {
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	prefer, impossible := corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicy("X")
	spec := corev1.ServiceSpec{ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1", "fd00::1"},
		IPFamilies: []corev1.IPFamily{v4, v6}, IPFamilyPolicy: &prefer}
	old, svc := &corev1.Service{Spec: spec}, &corev1.Service{Spec: spec}
	svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "10.0.0.9", []string{"10.0.0.9"}
	err := (&families{configured: []corev1.IPFamily{v4, v6}, svc: svc, old: old}).decide()
	if got, want := errorText(err), `Service "" is invalid: spec.ipFamilyPolicy: Invalid value: `+
		`"PreferDualStack": must be 'SingleStack' to release the secondary cluster IP`; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
	svc.Spec.IPFamilyPolicy = &impossible
	err = (&families{configured: []corev1.IPFamily{v4, v6}, svc: svc, old: old}).decide()
	if got, want := errorText(err), `Service "" is invalid: spec.ipFamilyPolicy: Unsupported value: "X": `+
		`supported values: "PreferDualStack", "RequireDualStack", "SingleStack"`; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func equal[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestKeepAllocated(t *testing.T) {
	old := &corev1.Service{Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, ClusterIP: "10.0.0.5", ClusterIPs: []string{"10.0.0.5"},
		Ports: []corev1.ServicePort{{Name: "a", Port: 80, NodePort: 30001}, {Name: "b", Port: 81, NodePort: 30002}},
	}}
	svc := &corev1.Service{Spec: corev1.ServiceSpec{
		Type:  corev1.ServiceTypeNodePort,
		Ports: []corev1.ServicePort{{Name: "b", Port: 81}, {Name: "c", Port: 82, NodePort: 30001}, {Name: "a", Port: 80}},
	}}
	keepAllocated(svc, old)
	var ports []int32
	for _, p := range svc.Spec.Ports {
		ports = append(ports, p.NodePort)
	}
	// Port c has the node port that port a had, so a gets none.
	if svc.Spec.ClusterIP != "10.0.0.5" || !equal(ports, []int32{30002, 30001, 0}) {
		t.Errorf("got %s %v", svc.Spec.ClusterIP, ports)
	}
}

// TestKeepAllocatedWithoutNodePorts checks that a load balancer loses its node ports when the client turns
// their allocation off.
func TestKeepAllocatedWithoutNodePorts(t *testing.T) {
	old := &corev1.Service{Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, AllocateLoadBalancerNodePorts: ptr.To(true),
		Ports: []corev1.ServicePort{{Port: 80, NodePort: 30001}},
	}}
	svc := old.DeepCopy()
	svc.Spec.AllocateLoadBalancerNodePorts, svc.Spec.Ports[0].NodePort = ptr.To(false), 0
	keepAllocated(svc, old)
	if n := svc.Spec.Ports[0].NodePort; n != 0 {
		t.Errorf("node port %d, want none", n)
	}
}

func TestMalformedServices(t *testing.T) {
	for name, spec := range map[string]corev1.ServiceSpec{
		"not an address":   {ClusterIP: "x", ClusterIPs: []string{"x"}},
		"fields disagree":  {ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.2"}},
		"None and another": {ClusterIP: "None", ClusterIPs: []string{"None", "10.0.0.2"}},
		"one family twice": {ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1", "10.0.0.2"}},
		"unknown family":   {IPFamilies: []corev1.IPFamily{"IPv5"}},
		"family mismatch": {ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"},
			IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &families{configured: []corev1.IPFamily{corev1.IPv4Protocol}, svc: &corev1.Service{Spec: spec}}
			if f.decide() == nil {
				t.Error("taken for well-formed")
			}
		})
	}
	svc := &corev1.Service{Spec: corev1.ServiceSpec{IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack)}}
	if err := (&families{configured: []corev1.IPFamily{corev1.IPv4Protocol}, svc: svc}).decide(); err != nil {
		t.Errorf("a service that says nothing: %v", err)
	}
}

// TestRestore checks that services that were stored before IP families existed get the missing
// fields.
func TestRestore(t *testing.T) {
	v4, v6 := corev1.IPv4Protocol, corev1.IPv6Protocol
	selector := map[string]string{"a": "b"}
	for name, tc := range map[string]struct {
		spec     corev1.ServiceSpec
		policy   corev1.IPFamilyPolicy
		ips      []string
		families []corev1.IPFamily
	}{
		"an address": {corev1.ServiceSpec{ClusterIP: "10.0.0.1"}, "SingleStack", []string{"10.0.0.1"},
			[]corev1.IPFamily{v4}},
		"an IPv6 address": {corev1.ServiceSpec{ClusterIP: "fd00::1"}, "SingleStack", []string{"fd00::1"},
			[]corev1.IPFamily{v6}},
		"two addresses": {corev1.ServiceSpec{ClusterIP: "10.0.0.1",
			ClusterIPs: []string{"10.0.0.1", "fd00::1"}}, "RequireDualStack", []string{"10.0.0.1", "fd00::1"},
			[]corev1.IPFamily{v4, v6}},
		"headless": {corev1.ServiceSpec{ClusterIP: "None", Selector: selector}, "SingleStack",
			[]string{"None"}, []corev1.IPFamily{v6}},
		"without endpoints": {corev1.ServiceSpec{ClusterIP: "None"}, "RequireDualStack", []string{"None"},
			[]corev1.IPFamily{v6, v4}},
		"external": {corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName,
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster)}, "", nil, nil},
		"of now": {corev1.ServiceSpec{ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"},
			IPFamilies: []corev1.IPFamily{v4}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack)},
			"PreferDualStack", []string{"10.0.0.1"}, []corev1.IPFamily{v4}},
	} {
		t.Run(name, func(t *testing.T) {
			svc := &corev1.Service{Spec: tc.spec}
			(&Allocator{Families: []corev1.IPFamily{v6, v4}}).Restore(svc)
			if policyOf(svc) != tc.policy || !slices.Equal(svc.Spec.ClusterIPs, tc.ips) ||
				!slices.Equal(svc.Spec.IPFamilies, tc.families) {
				t.Errorf("got %v %v %v, want %v %v %v", policyOf(svc), svc.Spec.ClusterIPs, svc.Spec.IPFamilies,
					tc.policy, tc.ips, tc.families)
			}
			if external(svc) && svc.Spec.InternalTrafficPolicy != nil {
				t.Errorf("internal traffic policy %v, want none", *svc.Spec.InternalTrafficPolicy)
			}
		})
	}
}
