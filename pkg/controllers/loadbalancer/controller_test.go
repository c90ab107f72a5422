// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson.dev/api/service"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/controllers/controller"
	"keelson.dev/keelson/pkg/controllers/controllertest"
)

func ranges(t *testing.T, list ...string) []controller.AddressRange {
	t.Helper()
	var out []controller.AddressRange
	for _, s := range list {
		r, err := controller.ParseAddressRange(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func addresses(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestAllocate(t *testing.T) {
	v4, both := []v1.IPFamily{v1.IPv4Protocol}, []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}
	for _, tc := range []struct {
		name     string
		families []v1.IPFamily
		asked    string
		has      []string
		taken    []string
		want     []string
		short    int
	}{
		{name: "Lowest", families: v4, want: []string{"192.0.2.1"}},
		{name: "LowestFree", families: v4, taken: []string{"192.0.2.1"}, want: []string{"192.0.2.2"}},
		{name: "KeepsWhatItHas", families: v4, has: []string{"192.0.2.3"}, want: []string{"192.0.2.3"}},
		{name: "NotAnothers", families: v4, has: []string{"192.0.2.3"}, taken: []string{"192.0.2.3"},
			want: []string{"192.0.2.1"}},
		{name: "NotOutside", families: v4, has: []string{"192.0.2.9"}, want: []string{"192.0.2.1"}},
		{name: "SecondRange", families: v4, taken: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"},
			want: []string{"192.0.2.77"}},
		{name: "Exhausted", families: v4, taken: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.77"}, short: 1},
		{name: "Both", families: both, want: []string{"192.0.2.1", "fd00::4"}},
		{name: "Asked", families: both, asked: "192.0.2.2", has: []string{"192.0.2.3"},
			want: []string{"192.0.2.2", "fd00::4"}},
		{name: "AskedNotFree", families: both, asked: "192.0.2.2", taken: []string{"192.0.2.2"},
			want: []string{"fd00::4"}, short: 1},
		{name: "AskedOutside", families: v4, asked: "192.0.2.9", short: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &v1.Service{Spec: v1.ServiceSpec{IPFamilies: tc.families, LoadBalancerIP: tc.asked}}
			for _, a := range tc.has {
				s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, v1.LoadBalancerIngress{IP: a})
			}
			taken := map[netip.Addr]bool{}
			for _, a := range addresses(tc.taken...) {
				taken[a] = true
			}
			got, short := allocate(s, ranges(t, "192.0.2.1-192.0.2.3", "192.0.2.77", "fd00::4/126"), taken)
			if !slices.Equal(got, addresses(tc.want...)) || len(short) != tc.short {
				t.Errorf("got %v, short of %v", got, short)
			}
		})
	}
}

func node(name string, ready bool) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	status := v1.ConditionFalse
	if ready {
		status = v1.ConditionTrue
	}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status}}
	return n
}

func TestElect(t *testing.T) {
	excluded := node("b", true)
	excluded.Labels = map[string]string{v1.LabelNodeExcludeBalancers: ""}
	on := func(name string, ready bool) []*discoveryv1.EndpointSlice {
		return []*discoveryv1.EndpointSlice{
			{Endpoints: []discoveryv1.Endpoint{{NodeName: &name, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}}}}
	}
	all := []*v1.Node{node("a", true), node("b", true), node("c", true)}
	for _, tc := range []struct {
		name   string
		by     string
		local  bool
		nodes  []*v1.Node
		slices []*discoveryv1.EndpointSlice
		want   string
	}{
		{name: "Stays", by: "b", nodes: all, want: "b"},
		{name: "NotReady", by: "b", nodes: []*v1.Node{node("a", true), node("b", false)}, want: "a"},
		{name: "Excluded", by: "b", nodes: []*v1.Node{node("a", true), excluded}, want: "a"},
		{name: "LocalEndpoint", by: "b", local: true, nodes: all, slices: on("c", true), want: "c"},
		{name: "NoLocalEndpoint", by: "b", local: true, nodes: all, slices: on("c", false), want: ""},
		{name: "None", by: "b", want: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{service.AnnouncedBy: tc.by}}}
			if tc.local {
				s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
			}
			if got := elect(s, tc.nodes, tc.slices); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	t.Run("Spread", func(t *testing.T) {
		got := map[string]int{}
		for i := range 300 {
			got[elect(&v1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}, all, nil)]++
		}
		for _, n := range all {
			if got[n.Name] < 50 {
				t.Errorf("%s announces %d of 300", n.Name, got[n.Name])
			}
		}
	})
}

func TestServer(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.RunAs(t, s, "service-controller",
		controller.Options{Workers: 5, LoadBalancerRanges: ranges(t, "192.0.2.8/31")}, New)
	services, nodes := s.Client.CoreV1().Services("default"), s.Client.CoreV1().Nodes()
	for _, name := range []string{"n1", "n2"} {
		n, err := nodes.Create(t.Context(), node(name, true), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n.Status.Conditions = node(name, true).Status.Conditions
		if _, err := nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		spec := v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Port: 80}}}
		if name == "a" {
			spec.LoadBalancerClass = ptr.To("example.com/other")
		}
		if _, err := services.Create(t.Context(), &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: spec}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := services.Create(t.Context(), &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Port: 80}}}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// There are two addresses for three Services. The third Service gets an address when one of the
	// others is no longer of type LoadBalancer.
	given := func(ctx context.Context) (map[string]string, error) {
		list, err := services.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		out := map[string]string{}
		for _, svc := range list.Items {
			if a := statusAddresses(&svc); len(a) == 1 && svc.Annotations[service.AnnouncedBy] != "" {
				out[svc.Name] = a[0].String()
			}
		}
		return out, nil
	}
	var first string
	controllertest.Eventually(t, "two of three", func(ctx context.Context) (any, bool) {
		got, err := given(ctx)
		seen := map[string]bool{}
		for name, a := range got {
			seen[a], first = true, name
		}
		return got, err == nil && len(got) == 2 && len(seen) == 2 && got["a"] == ""
	})
	svc, err := services.Get(t.Context(), first, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	svc.Spec.Type = v1.ServiceTypeClusterIP
	if _, err := services.Update(t.Context(), svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, "the third", func(ctx context.Context) (any, bool) {
		got, err := given(ctx)
		return got, err == nil && len(got) == 2 && got[first] == ""
	})
}

// TestReplacedAddress checks that a Service gets the address that it requests when another Service gives it
// up for another address.
func TestReplacedAddress(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	controllertest.RunAs(t, s, "service-controller",
		controller.Options{LoadBalancerRanges: ranges(t, "192.0.2.8/31")}, New)
	services := s.Client.CoreV1().Services("default")
	becomes := func(name, want string) {
		t.Helper()
		controllertest.Eventually(t, name+" "+want, func(ctx context.Context) (any, bool) {
			svc, err := services.Get(ctx, name, metav1.GetOptions{})
			return svc.Status, err == nil && slices.Equal(statusAddresses(svc), addresses(want))
		})
	}
	for _, name := range []string{"first", "second"} {
		if _, err := services.Create(t.Context(), &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, LoadBalancerIP: "192.0.2.8",
				Ports: []v1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	becomes("first", "192.0.2.8")
	if _, err := services.Patch(t.Context(), "first", types.MergePatchType,
		[]byte(`{"spec":{"loadBalancerIP":"192.0.2.9"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes("first", "192.0.2.9")
	becomes("second", "192.0.2.8")
}
