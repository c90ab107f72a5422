// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

func service(name string, change func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt(80)}}},
	}
	if change != nil {
		change(svc)
	}
	return svc
}

// TestServersShareServiceRanges checks that two servers over one store allocate every address and
// node port of small ranges exactly once, and then reject further services.
func TestServersShareServiceRanges(t *testing.T) {
	small := func(c *config.Config) {
		// The range has 30 addresses, one of them for "kubernetes".
		c.ServiceClusterIPRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/27")}
		c.ServiceNodePorts = config.PortRange{First: 30000, Last: 30039}
	}
	one := testserver.Start(t, testserver.Options{Configure: small})
	two := testserver.Start(t, testserver.Options{Configure: small, KV: one.KV, Dir: one.Dir})
	const each = 20 // both servers together try 40: 11 more than there are free addresses
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		ips    = map[string]string{"10.96.0.1": "kubernetes"}
		ports  = map[int32]string{}
		failed int
	)
	for i, s := range []*testserver.Server{one, two} {
		for j := range each {
			wg.Go(func() {
				name := fmt.Sprintf("s-%d-%d", i, j)
				got, err := s.Client.CoreV1().Services("default").Create(t.Context(),
					service(name, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }), metav1.CreateOptions{})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed++
					return
				}
				if other, ok := ips[got.Spec.ClusterIP]; ok {
					t.Errorf("%s has the address of %s: %s", name, other, got.Spec.ClusterIP)
				}
				if other, ok := ports[got.Spec.Ports[0].NodePort]; ok {
					t.Errorf("%s has the node port of %s: %d", name, other, got.Spec.Ports[0].NodePort)
				}
				ips[got.Spec.ClusterIP], ports[got.Spec.Ports[0].NodePort] = name, name
			})
		}
	}
	wg.Wait()
	if len(ips) != 30 || failed != 11 {
		t.Errorf("%d addresses are in use and %d services were refused, want 30 and 11", len(ips), failed)
	}
	list, err := two.Client.NetworkingV1().IPAddresses().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 30 {
		t.Errorf("%d IPAddress objects, %v; want 30: refused services must leave none", len(list.Items), err)
	}
	// A deleted service frees its address and ports.
	if err := one.Client.CoreV1().Services("default").Delete(t.Context(), anyOf(ips), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Client.CoreV1().Services("default").Create(t.Context(), service("again", nil),
		metav1.CreateOptions{}); err != nil {
		t.Errorf("after a delete: %v", err)
	}
}

// TestNodePortsExhausted checks that a service for which no node port is free is rejected and
// leaves neither a Service nor an address, and that a freed port is allocated again.
func TestNodePortsExhausted(t *testing.T) {
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) {
		c.ServiceNodePorts = config.PortRange{First: 30000, Last: 30001}
	}})
	api := s.Client.CoreV1().Services("default")
	create := func(name string) error {
		_, err := api.Create(t.Context(),
			service(name, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }), metav1.CreateOptions{})
		return err
	}
	for _, name := range []string{"one", "two"} {
		if err := create(name); err != nil {
			t.Fatal(err)
		}
	}
	const want = "Internal error occurred: failed to allocate a nodePort: range is full"
	if err := create("three"); !apierrors.IsInternalError(err) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	list, err := s.Client.NetworkingV1().IPAddresses().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 3 { // including that of "kubernetes"
		t.Errorf("%d addresses are taken, %v", len(list.Items), err)
	}
	if _, err := api.Get(t.Context(), "three", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the refused service: %v", err)
	}
	if err := api.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := create("three"); err != nil {
		t.Errorf("after a port was given back: %v", err)
	}
}

func anyOf(ips map[string]string) string {
	for _, name := range ips {
		if name != "kubernetes" {
			return name
		}
	}
	return ""
}

func TestServiceAllocation(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	api := s.Client.CoreV1().Services("default")
	create := func(name string, change func(*corev1.Service)) (*corev1.Service, error) {
		return api.Create(t.Context(), service(name, change), metav1.CreateOptions{})
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Service)
		want   string
	}{
		"outside": {func(s *corev1.Service) { s.Spec.ClusterIP = "1.2.3.4" },
			`Service "outside" is invalid: spec.clusterIPs: Invalid value: ["1.2.3.4"]: failed to allocate ` +
				`IP 1.2.3.4: the provided network does not match the current range`},
		"taken": {func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.1" },
			`Service "taken" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.1"]: failed to allocate ` +
				`IP 10.96.0.1: provided IP is already allocated`},
		"port range": {func(s *corev1.Service) { s.Spec.Type = "NodePort"; s.Spec.Ports[0].NodePort = 99 },
			`Service "port range" is invalid: spec.ports[0].nodePort: Invalid value: 99: provided port is ` +
				`not in the valid range. The range of valid ports is 30000-32767`},
		"dual": {func(s *corev1.Service) {
			p := corev1.IPFamilyPolicyRequireDualStack
			s.Spec.IPFamilyPolicy = &p
		}, `Service "dual" is invalid: spec.ipFamilyPolicy: Invalid value: ` +
			`"RequireDualStack": this cluster is not configured for dual-stack services`},
		"not an IPv6": {func(s *corev1.Service) { s.Spec.ClusterIP = "fd00::1" },
			`Service "not an IPv6" is invalid: spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is not ` +
				`configured on this cluster`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := create(name, tc.change); err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
	lb, err := create("lb", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.Ports = []corev1.ServicePort{{Name: "t", Port: 53, Protocol: "TCP"}, {Name: "u", Port: 53, Protocol: "UDP"}}
	})
	if err != nil {
		t.Fatal(err)
	}
	if lb.Spec.HealthCheckNodePort == 0 || lb.Spec.Ports[0].NodePort == 0 ||
		lb.Spec.Ports[0].NodePort != lb.Spec.Ports[1].NodePort {
		t.Errorf("health port %d, ports %v: TCP and UDP of one port share a node port",
			lb.Spec.HealthCheckNodePort, lb.Spec.Ports)
	}
	port, ip := lb.Spec.Ports[0].NodePort, lb.Spec.ClusterIP
	lb.Spec.Type, lb.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
	lb, err = api.Update(t.Context(), lb, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if lb.Spec.ClusterIP != "" || lb.Spec.Ports[0].NodePort != 0 || lb.Spec.HealthCheckNodePort != 0 {
		t.Errorf("an external name keeps %q, %v, %d", lb.Spec.ClusterIP, lb.Spec.Ports, lb.Spec.HealthCheckNodePort)
	}
	got, err := create("heir", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ClusterIP, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, ip, port
	})
	if err != nil || got.Spec.ClusterIP != ip {
		t.Errorf("what a service gave up: %v", err)
	}
	dry, err := api.Create(t.Context(),
		service("dry", func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.3.3" }),
		metav1.CreateOptions{DryRun: []string{"All"}})
	if err != nil || dry.Spec.ClusterIP != "10.96.3.3" {
		t.Fatalf("dry run: %v", err)
	}
	if _, err := create("wet", func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.3.3" }); err != nil {
		t.Errorf("after a dry run: %v", err)
	}
}

// TestLostAddressIsRecordedAgain checks that a starting server creates the IPAddress object of a
// service whose address has none. The server lists services in its own store to find them.
func TestLostAddressIsRecordedAgain(t *testing.T) {
	one := testserver.Start(t, testserver.Options{})
	svc, err := one.Client.CoreV1().Services("default").Create(t.Context(), service("s", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Client.NetworkingV1().IPAddresses().Delete(t.Context(), svc.Spec.ClusterIP,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	two := testserver.Start(t, testserver.Options{KV: one.KV, Dir: one.Dir})
	if _, err := two.Client.NetworkingV1().IPAddresses().Get(t.Context(), svc.Spec.ClusterIP,
		metav1.GetOptions{}); err != nil {
		t.Errorf("the address of the service: %v", err)
	}
	_, metrics := answerTo(t, two.Config, "/metrics")
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "apiserver_request_total{") &&
			strings.Contains(line, `resource="services"`) && strings.Contains(line, `verb="LIST"`) {
			t.Errorf("the server asked itself: %s", line)
		}
	}
}

// TestChangesAreRepaired checks that a running server creates the missing IPAddress of a service when the
// service changes, and deletes an IPAddress of the allocator that belongs to no service when it appears.
// Both are reported as events.
func TestChangesAreRepaired(t *testing.T) {
	s := testserver.Start(t, testserver.Options{})
	services, addresses := s.Client.CoreV1().Services("default"), s.Client.NetworkingV1().IPAddresses()
	svc, err := services.Create(t.Context(), service("s", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := addresses.Delete(t.Context(), svc.Spec.ClusterIP, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	changes := 0
	eventually(t, func(ctx context.Context) bool {
		changes++
		// A change has no effect before the server has seen the deletion.
		if _, err := services.Patch(ctx, "s", types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{"changes":"%d"}}}`, changes), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
		_, err := addresses.Get(ctx, svc.Spec.ClusterIP, metav1.GetOptions{})
		return err == nil
	})
	labels := map[string]string{networkingv1.LabelManagedBy: "ipallocator.k8s.io"}
	if _, err := addresses.Create(t.Context(), &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: "10.96.0.77", Labels: labels},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Group: "example.com",
			Resource: "gateways", Name: "g"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) bool {
		_, err := addresses.Get(ctx, "10.96.0.77", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	eventually(t, func(ctx context.Context) bool {
		events, err := s.Client.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Error(err)
			return false
		}
		var got []string
		for _, e := range events.Items {
			got = append(got, e.ReportingController+" "+e.Regarding.Kind+" "+e.Reason+" "+e.Action)
		}
		slices.Sort(got)
		return slices.Equal(got, []string{
			"ipallocator-repair-controller IPAddress IPAddressNotAllocated IPAddressAllocation",
			"ipallocator-repair-controller Service ClusterIPNotAllocated ClusterIPAllocation"})
	})
}
