// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
	"keelson.dev/keelson/pkg/proxy"
	"keelson.dev/keelson/pkg/proxy/kernel"
)

// cluster is an API server, a node and its proxy.
type cluster struct {
	*node
	client kubernetes.Interface
	proxy  *proxy.Proxy
	server *testserver.Server
}

func newCluster(t *testing.T, change func(*proxy.Config)) *cluster {
	t.Helper()
	c := &cluster{node: newNode(t, newSpace(t))}
	c.serve()
	c.start(change)
	return c
}

// serve starts the API server.
func (c *cluster) serve() {
	c.t.Helper()
	c.server = testserver.Start(c.t, testserver.Options{Configure: func(c *config.Config) {
		c.ServiceClusterIPRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd96::/112")}
	}})
	c.client = c.server.Client
	c.create(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "z1"}},
	})
}

func (c *cluster) config() proxy.Config {
	return proxy.Config{
		Node: "n1", MasqueradeBit: 14, Pods: kernel.ByRange,
		PodRanges: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd44::/16")},
		Audit:     time.Hour, HealthTimeout: time.Hour, NetNS: int(c.ns),
	}
}

// start starts the proxy; the function returned ends it and leaves its tables, as killing it does.
func (c *cluster) start(change func(*proxy.Config)) (stop func()) {
	c.t.Helper()
	cfg := c.config()
	if change != nil {
		change(&cfg)
	}
	p, err := proxy.New(cfg, proxy.Deps{
		Client: c.client, Clock: clock.Real(), Log: slog.New(slog.NewTextHandler(c.t.Output(), nil)),
		Metrics: prometheus.NewRegistry(), Event: func(types.NamespacedName, string, string) {},
	})
	c.must(err)
	c.proxy = p
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	}
	c.t.Cleanup(stop)
	c.eventually("proxy ready", p.Health().Synced)
	return stop
}

// eventually waits for something that comes by itself.
func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	for range 3000 {
		if ok() {
			return
		}
		pause()
	}
	c.t.Fatal("not seen: " + what)
}

func pause() {
	t := clock.Real().NewTimer(10 * time.Millisecond)
	<-t.C()
}

func (c *cluster) create(objects ...metav1.Object) {
	c.t.Helper()
	ctx := context.Background()
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *corev1.Node:
			_, err = c.client.CoreV1().Nodes().Create(ctx, o, metav1.CreateOptions{})
		case *corev1.Service:
			_, err = c.client.CoreV1().Services("default").Create(ctx, o, metav1.CreateOptions{})
		case *discoveryv1.EndpointSlice:
			_, err = c.client.DiscoveryV1().EndpointSlices("default").Create(ctx, o, metav1.CreateOptions{})
		}
		c.must(err)
	}
}

// svc makes a Service with the port 80 of a protocol, and with its IPv4 slice.
func (c *cluster) svc(name string, protocol corev1.Protocol, change func(*corev1.ServiceSpec), pods ...endpoint) *corev1.Service {
	c.t.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, Protocol: protocol, TargetPort: intstr.FromInt32(targetPort)}}},
	}
	if change != nil {
		change(&s.Spec)
	}
	s, err := c.client.CoreV1().Services("default").Create(context.Background(), s, metav1.CreateOptions{})
	c.must(err)
	c.create(slice(name, protocol, discoveryv1.AddressTypeIPv4, pods...))
	return s
}

// endpoint is a pod in a slice.
type endpoint struct {
	*pod
	node                  string
	terminating, notReady bool
}

func on(n string, p *pod) endpoint { return endpoint{pod: p, node: n} }

func slice(svc string, protocol corev1.Protocol, family discoveryv1.AddressType, pods ...endpoint) *discoveryv1.EndpointSlice {
	port, empty := int32(targetPort), ""
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: svc + "-" + strings.ToLower(string(family)), Labels: map[string]string{discoveryv1.LabelServiceName: svc}},
		AddressType: family, Endpoints: []discoveryv1.Endpoint{},
		Ports: []discoveryv1.EndpointPort{{Name: &empty, Port: &port, Protocol: &protocol}},
	}
	for _, p := range pods {
		addr := p.v4.String()
		if family == discoveryv1.AddressTypeIPv6 {
			addr = p.v6.String()
		}
		ready, serving, node := !p.terminating && !p.notReady, !p.notReady, p.node
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{addr}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &p.terminating},
		})
	}
	return s
}

// endpoints replaces the endpoints of a service.
func (c *cluster) endpoints(svc string, protocol corev1.Protocol, pods ...endpoint) {
	c.t.Helper()
	s := slice(svc, protocol, discoveryv1.AddressTypeIPv4, pods...)
	_, err := c.client.DiscoveryV1().EndpointSlices("default").Update(context.Background(), s, metav1.UpdateOptions{})
	c.must(err)
}

func vip(s *corev1.Service) string { return s.Spec.ClusterIP + ":80" }

// reachable waits until a connection is answered.
func (c *cluster) reachable(from *space, to string) {
	c.t.Helper()
	c.eventually(to+" answers", func() bool {
		// A packet that came before the rules keeps its way as long as it is repeated.
		conn, err := from.dial("tcp", to, 300*time.Millisecond)
		if err != nil {
			return false
		}
		defer conn.Close()
		_, err = ask(conn)
		return err == nil
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
		if _, err := client.dial("tcp", "10.96.200.200:80", 300*time.Millisecond); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
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
	seconds := int32(60)
	s := c.svc("sticky", corev1.ProtocolTCP, func(s *corev1.ServiceSpec) {
		s.SessionAffinity = corev1.ServiceAffinityClientIP
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}, pods...)
	c.reachable(client.space, vip(s))
	first := client.spread(vip(s), 30)
	if len(first) != 1 {
		t.Fatalf("one client reached %v", first)
	}
	// Another one keeps its endpoint when others go, and gets a new one when its own goes.
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

// proxied waits until the proxy has made all changes that the API server has answered. Its
// own marker goes last.
func (c *cluster) proxied() {
	c.t.Helper()
	name := "marker-" + metav1.Now().Format("150405.000000")[7:]
	p := c.pod()
	s := c.svc(name, corev1.ProtocolTCP, nil, on("n1", p))
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

// healthCheck asks the health check node port. The server listens in the test's namespace.
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
	s := c.svc("int", corev1.ProtocolTCP, func(s *corev1.ServiceSpec) { s.InternalTrafficPolicy = &local }, on("n1", a), on("n2", b))
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

// TestUDP checks that a client that keeps sending from one port follows the service.
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
			_ = conn.SetDeadline(time.Now().Add(50 * time.Millisecond)) //nolint:forbidigo // a socket's deadline is real time
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
		_ = fresh.SetDeadline(time.Now().Add(50 * time.Millisecond)) //nolint:forbidigo // a socket's deadline is real time
		_, _ = fresh.Write([]byte("?"))
		_, err = fresh.Read(make([]byte, 10))
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	c.endpoints("dns", corev1.ProtocolUDP, on("n1", a))
	follow(a)
}

// TestTopology checks that hints for the node's zone are followed, and that a node that
// moves to another zone is seen.
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
	_, err = c.client.CoreV1().Nodes().Patch(context.Background(), "n1", types.MergePatchType, patch, metav1.PatchOptions{})
	c.must(err)
	c.eventually("the other zone's endpoint", func() bool { return client.spread(vip(s), 20)[b.name] == 20 })
}

// TestNodePortsPrimary starts before the node has an address.
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
	_, err := c.client.CoreV1().Nodes().Patch(context.Background(), "n1", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	c.must(err)
	c.reachable(c.outside, "192.0.2.1:"+number.String())
	if _, err := a.get("10.244.1.1:" + number.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("on another address: got %v, want refused", err)
	}
}
