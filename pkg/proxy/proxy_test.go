// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/proxy"
)

// TestRoundsAreTraced checks that the proxy records a span for each round of changes.
func TestRoundsAreTraced(t *testing.T) {
	c := newCluster(t, nil)
	c.svc("web", corev1.ProtocolTCP, nil)
	c.eventually("span of a round with a service", func() bool {
		return slices.ContainsFunc(c.spans.Ended(), func(s sdktrace.ReadOnlySpan) bool {
			services := attribute.Int("keelson.proxy.services", 1)
			return s.Name() == "syncProxyRules" && slices.Contains(s.Attributes(), services)
		})
	})
}

func TestClusterIP(t *testing.T) {
	c := newCluster(t, nil)
	client, a, b := c.pod(), c.pod(), c.pod()
	s := c.svc("web", corev1.ProtocolTCP, nil, on("n1", a), on("n1", b))
	c.reachable(client.space, vip(s))

	t.Run("Spread", func(t *testing.T) {
		got := client.spread(vip(s), 100)
		if len(got) != 2 || got[a.name] < 20 || got[b.name] < 20 {
			t.Errorf("spread over endpoints: %v", got)
		}
	})
	t.Run("SourceIsKept", func(t *testing.T) {
		if got, err := client.get(vip(s)); err != nil || got.client != client.v4.String() {
			t.Errorf("got %v, %v; want the pod's own address", got, err)
		}
	})
	t.Run("FromOutsideIsMasqueraded", func(t *testing.T) {
		if got, err := c.outside.get(vip(s)); err != nil || got.client != "10.244.1.1" {
			t.Errorf("got %v, %v; want the node's address", got, err)
		}
	})
	t.Run("FromNode", func(t *testing.T) { c.spread(vip(s), 3) })
	t.Run("UndefinedPortIsRefused", func(t *testing.T) {
		if _, err := client.get(s.Spec.ClusterIP + ":81"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v, want refused", err)
		}
	})
	t.Run("UnallocatedIsDropped", func(t *testing.T) {
		if _, err := client.dial("tcp", "10.96.200.200:80", 300*time.Millisecond); err == nil ||
			errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v, want a time-out", err)
		}
	})
	t.Run("NoEndpointsIsRefused", func(t *testing.T) {
		c.endpoints("web", corev1.ProtocolTCP)
		c.eventually("refusal", func() bool {
			_, err := client.get(vip(s))
			return errors.Is(err, syscall.ECONNREFUSED)
		})
		if _, err := c.get(vip(s)); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("from the node: got %v, want refused", err)
		}
	})
	t.Run("TerminatingIsTheFallback", func(t *testing.T) {
		old := on("n1", a)
		old.terminating = true
		c.endpoints("web", corev1.ProtocolTCP, old)
		c.reachable(client.space, vip(s))
		c.endpoints("web", corev1.ProtocolTCP, old, on("n1", b))
		c.eventually("only the ready one", func() bool { return client.spread(vip(s), 10)[b.name] == 10 })
	})
}

// TestServiceCIDR checks that packets to an address are forwarded until a ServiceCIDR includes it.
// After that they are dropped unless a Service has the address.
func TestServiceCIDR(t *testing.T) {
	c := newCluster(t, nil)
	client, outside := c.pod(), &pod{space: c.outside, name: "outside"}
	c.outside.address("eth0", "10.97.0.5/32")
	outside.serve()
	c.reachable(client.space, "10.97.0.5:8080")
	_, err := c.client.NetworkingV1().ServiceCIDRs().Create(t.Context(), &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/16"}},
	}, metav1.CreateOptions{})
	c.must(err)
	c.refused(client.space, "10.97.0.5:8080")
}

func TestHairpin(t *testing.T) {
	c := newCluster(t, nil)
	a := c.pod()
	s := c.svc("self", corev1.ProtocolTCP, nil, on("n1", a))
	c.reachable(a.space, vip(s))
	if got, err := a.get(vip(s)); err != nil || got.client == a.v4.String() {
		t.Errorf("got %v, %v; want another source than the pod itself", got, err)
	}
}

func TestDualStack(t *testing.T) {
	c := newCluster(t, nil)
	client, a := c.pod(), c.pod()
	s := c.svc("both", corev1.ProtocolTCP, func(s *corev1.ServiceSpec) {
		both := corev1.IPFamilyPolicyRequireDualStack
		s.IPFamilyPolicy = &both
		s.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Type = corev1.ServiceTypeNodePort
	}, on("n1", a))
	c.create(slice("both", corev1.ProtocolTCP, discoveryv1.AddressTypeIPv6, on("n1", a)))
	c.reachable(client.space, vip(s))
	c.reachable(client.space, "["+s.Spec.ClusterIPs[1]+"]:80")
	c.spread("["+s.Spec.ClusterIPs[1]+"]:80", 3)
	port := intstr.FromInt32(s.Spec.Ports[0].NodePort)
	c.outside.spread("[2001:db8::1]:"+port.String(), 3)
	c.outside.spread("192.0.2.1:"+port.String(), 3)
	a.spread("["+s.Spec.ClusterIPs[1]+"]:80", 3)
}

func TestSessionAffinity(t *testing.T) {
	c := newCluster(t, nil)
	client, pods := c.pod(), []endpoint{}
	for range 4 {
		pods = append(pods, on("n1", c.pod()))
	}
	seconds := int32(10800)
	s := c.svc("sticky", corev1.ProtocolTCP, func(s *corev1.ServiceSpec) {
		s.SessionAffinity = corev1.ServiceAffinityClientIP
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}, pods...)
	c.reachable(client.space, vip(s))
	first := client.spread(vip(s), 30)
	if len(first) != 1 {
		t.Fatalf("one client reached %v", first)
	}
	// A client keeps its endpoint while other endpoints are removed. When its own endpoint is
	// removed, it gets another one.
	var kept, rest []endpoint
	for _, p := range pods {
		if first[p.name] > 0 {
			kept = append(kept, p)
		} else {
			rest = append(rest, p)
		}
	}
	c.endpoints("sticky", corev1.ProtocolTCP, append(kept, rest[0])...)
	c.proxied()
	if got := client.spread(vip(s), 30); got[kept[0].name] != 30 {
		t.Errorf("after others went: %v, want only %s", got, kept[0].name)
	}
	c.endpoints("sticky", corev1.ProtocolTCP, rest...)
	c.eventually("a new endpoint", func() bool {
		got := client.spread(vip(s), 1)
		return got[kept[0].name] == 0
	})
	if got := client.spread(vip(s), 30); len(got) != 1 || got[kept[0].name] != 0 {
		t.Errorf("after its endpoint went: %v", got)
	}
}

// proxied waits until the proxy has applied all changes so far. To do this, it creates a service
// and waits for it, because the proxy applies it after the other changes.
func (c *cluster) proxied() {
	c.t.Helper()
	p := c.pod()
	s := c.svc("marker-for-"+p.name, corev1.ProtocolTCP, nil, on("n1", p))
	c.reachable(c.space, vip(s))
}

func TestNodePort(t *testing.T) {
	c := newCluster(t, nil)
	a := c.pod()
	s := c.svc("np", corev1.ProtocolTCP, func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }, on("n1", a))
	number := intstr.FromInt32(s.Spec.Ports[0].NodePort)
	port := ":" + number.String()
	c.reachable(c.outside, "192.0.2.1"+port)
	if got, err := c.outside.get("192.0.2.1" + port); err != nil || got.client != "10.244.1.1" {
		t.Errorf("got %v, %v; want it masqueraded", got, err)
	}
	a.spread("10.244.1.1"+port, 3)
	c.spread("192.0.2.1"+port, 3)
	if _, err := c.get("127.0.0.1" + port); err == nil {
		t.Error("a node port on the loopback address")
	}
	c.endpoints("np", corev1.ProtocolTCP)
	c.eventually("refusal", func() bool {
		_, err := c.outside.get("192.0.2.1" + port)
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

func TestNodePortAddresses(t *testing.T) {
	c := newCluster(t, func(cfg *proxy.Config) { cfg.NodePorts = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
	a := c.pod()
	s := c.svc("np", corev1.ProtocolTCP, func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }, on("n1", a))
	number := intstr.FromInt32(s.Spec.Ports[0].NodePort)
	c.reachable(c.outside, "192.0.2.1:"+number.String())
	if _, err := a.get("10.244.1.1:" + number.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("on another address: got %v, want refused", err)
	}
}

func TestExternalTrafficPolicyLocal(t *testing.T) {
	c := newCluster(t, nil)
	a, b := c.pod(), c.pod()
	elsewhere := on("n2", b)
	s := c.svc("local", corev1.ProtocolTCP, func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
		s.LoadBalancerSourceRanges = []string{"192.0.2.2/32", "10.244.0.0/16"}
	}, on("n1", a), elsewhere)
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.7"}}
	s, err := c.client.CoreV1().Services("default").UpdateStatus(context.Background(), s, metav1.UpdateOptions{})
	c.must(err)
	lb := "198.51.100.7:80"
	c.reachable(c.outside, lb)
	for range 20 {
		if got, err := c.outside.get(lb); err != nil || got != (answer{a.name, "192.0.2.2"}) {
			t.Fatalf("got %v, %v; want the local pod, and the client's own address", got, err)
		}
	}
	if got := a.spread(lb, 40); len(got) != 2 {
		t.Errorf("pods reach %v, want both", got)
	}
	number := intstr.FromInt32(s.Spec.Ports[0].NodePort)
	if got := c.outside.spread("192.0.2.1:"+number.String(), 10); got[a.name] != 10 {
		t.Errorf("node port reaches %v", got)
	}
	if got := c.spread("192.0.2.1:"+number.String(), 40); len(got) != 2 {
		t.Errorf("the node reaches %v, want both", got)
	}
	t.Run("HealthCheck", func(t *testing.T) { c.healthCheck(s, http.StatusOK) })

	t.Run("NoLocalEndpointIsDropped", func(t *testing.T) {
		c.endpoints("local", corev1.ProtocolTCP, elsewhere)
		c.eventually("drop", func() bool {
			conn, err := c.outside.dial("tcp", lb, 200*time.Millisecond)
			if err == nil {
				conn.Close()
			}
			return err != nil && !errors.Is(err, syscall.ECONNREFUSED)
		})
		c.healthCheck(s, http.StatusServiceUnavailable)
	})
	t.Run("SourceRanges", func(t *testing.T) {
		c.endpoints("local", corev1.ProtocolTCP, on("n1", a))
		c.reachable(c.outside, lb)
		s.Spec.LoadBalancerSourceRanges = []string{"10.244.0.0/16"}
		_, err := c.client.CoreV1().Services("default").Update(context.Background(), s, metav1.UpdateOptions{})
		c.must(err)
		c.eventually("drop", func() bool {
			conn, err := c.outside.dial("tcp", lb, 200*time.Millisecond)
			if err == nil {
				conn.Close()
			}
			return err != nil
		})
		a.spread(lb, 3)
	})
}

// healthCheck requests the service's health check node port. The server listens in the namespace of
// the tests.
func (c *cluster) healthCheck(s *corev1.Service, want int) {
	c.t.Helper()
	number := intstr.FromInt32(s.Spec.HealthCheckNodePort)
	c.eventually("health check", func() bool {
		res, err := http.Get("http://127.0.0.1:" + number.String())
		if err != nil {
			return false
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		return res.StatusCode == want
	})
}

func TestInternalTrafficPolicyLocal(t *testing.T) {
	c := newCluster(t, nil)
	client, a, b := c.pod(), c.pod(), c.pod()
	local := corev1.ServiceInternalTrafficPolicyLocal
	s := c.svc("int", corev1.ProtocolTCP, func(s *corev1.ServiceSpec) { s.InternalTrafficPolicy = &local },
		on("n1", a), on("n2", b))
	c.reachable(client.space, vip(s))
	if got := client.spread(vip(s), 20); got[a.name] != 20 {
		t.Errorf("reached %v, want only the local pod", got)
	}
	c.endpoints("int", corev1.ProtocolTCP, on("n2", b))
	c.eventually("drop", func() bool {
		conn, err := client.dial("tcp", vip(s), 200*time.Millisecond)
		if err == nil {
			conn.Close()
		}
		return err != nil && !errors.Is(err, syscall.ECONNREFUSED)
	})
}

// TestUDP checks that packets of a client that keeps sending from one port are always sent to a
// current endpoint of the service.
func TestUDP(t *testing.T) {
	c := newCluster(t, nil)
	client, a, b := c.pod(), c.pod(), c.pod()
	s := c.svc("dns", corev1.ProtocolUDP, nil, on("n1", a))
	conn, err := client.dial("udp", vip(s), time.Second)
	c.must(err)
	defer conn.Close()
	follow := func(want *pod) {
		t.Helper()
		c.eventually(want.name+" answers", func() bool {
			_ = conn.SetDeadline(clock.Real().Now().Add(50 * time.Millisecond))
			if _, err := conn.Write([]byte("?")); err != nil {
				return false
			}
			buf := make([]byte, 100)
			n, err := conn.Read(buf)
			return err == nil && string(buf[:n]) == want.name
		})
	}
	follow(a)
	c.endpoints("dns", corev1.ProtocolUDP, on("n1", b))
	follow(b)
	c.endpoints("dns", corev1.ProtocolUDP)
	c.eventually("refusal of a new client", func() bool {
		fresh, err := client.dial("udp", vip(s), time.Second)
		c.must(err)
		defer fresh.Close()
		_ = fresh.SetDeadline(clock.Real().Now().Add(50 * time.Millisecond))
		_, _ = fresh.Write([]byte("?"))
		_, err = fresh.Read(make([]byte, 10))
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	c.endpoints("dns", corev1.ProtocolUDP, on("n1", a))
	follow(a)
}

// TestTopology checks that the proxy uses hints for the node's zone, and that it notices when the
// node gets another zone.
func TestTopology(t *testing.T) {
	c := newCluster(t, nil)
	client, a, b := c.pod(), c.pod(), c.pod()
	s := c.svc("zones", corev1.ProtocolTCP, nil)
	hinted := slice("zones", corev1.ProtocolTCP, discoveryv1.AddressTypeIPv4, on("n1", a), on("n2", b))
	for i, zone := range []string{"z1", "z2"} {
		hinted.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
	}
	_, err := c.client.DiscoveryV1().EndpointSlices("default").Update(context.Background(), hinted, metav1.UpdateOptions{})
	c.must(err)
	c.reachable(client.space, vip(s))
	if got := client.spread(vip(s), 20); got[a.name] != 20 {
		t.Errorf("in zone z1: %v", got)
	}
	patch := []byte(`{"metadata":{"labels":{"topology.kubernetes.io/zone":"z2"}}}`)
	_, err = c.client.CoreV1().Nodes().Patch(context.Background(), "n1", types.MergePatchType, patch,
		metav1.PatchOptions{})
	c.must(err)
	c.eventually("the other zone's endpoint", func() bool { return client.spread(vip(s), 20)[b.name] == 20 })
}

// TestNodePortsPrimary starts the proxy before the Node has an address. It checks that node ports
// are served once the Node has one.
func TestNodePortsPrimary(t *testing.T) {
	c := newCluster(t, func(cfg *proxy.Config) { cfg.NodePortsPrimary = true })
	a := c.pod()
	s := c.svc("np", corev1.ProtocolTCP, func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }, on("n1", a))
	number := intstr.FromInt32(s.Spec.Ports[0].NodePort)
	c.proxied()
	if _, err := c.outside.get("192.0.2.1:" + number.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("before the address is known: got %v, want refused", err)
	}
	patch := []byte(`{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`)
	_, err := c.client.CoreV1().Nodes().Patch(context.Background(), "n1", types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	c.must(err)
	c.reachable(c.outside, "192.0.2.1:"+number.String())
	if _, err := a.get("10.244.1.1:" + number.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("on another address: got %v, want refused", err)
	}
}
