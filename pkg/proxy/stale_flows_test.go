// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson.dev/api/clock"
)

// sender is a client that keeps sending from one port, so that its flow does not expire.
type sender struct {
	at, family string
	conn       net.Conn
}

// ask sends one datagram and returns the pod's name in the answer, or "" without an answer.
func (s *sender) ask(wait time.Duration) string {
	_ = s.conn.SetDeadline(clock.Real().Now().Add(wait))
	_, _ = s.conn.Write([]byte("?")) // an error reports the rejection of the previous datagram
	buf := make([]byte, 100)
	n, err := s.conn.Read(buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// flows returns the UDP entries of the namespace's connection tracking table.
func (s *space) flows(family netlink.InetFamily) []*netlink.ConntrackFlow {
	s.t.Helper()
	h, err := netlink.NewHandleAt(s.ns, unix.NETLINK_NETFILTER)
	s.must(err)
	defer h.Close()
	list, err := h.ConntrackTableList(netlink.ConntrackTable, family)
	s.must(err)
	return slices.DeleteFunc(list, func(f *netlink.ConntrackFlow) bool { return f.Forward.Protocol != unix.IPPROTO_UDP })
}

// to returns the address to which the sender's flow goes, or the zero value if the flow does not
// exist.
func (s *sender) to(node *space) netip.AddrPort {
	from, to := s.conn.LocalAddr().(*net.UDPAddr).AddrPort(), s.conn.RemoteAddr().(*net.UDPAddr).AddrPort()
	family := netlink.InetFamily(unix.AF_INET)
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	for _, f := range node.flows(family) {
		if f.Forward.SrcPort == from.Port() && f.Forward.SrcIP.Equal(from.Addr().AsSlice()) &&
			f.Forward.DstPort == to.Port() && f.Forward.DstIP.Equal(to.Addr().AsSlice()) {
			a, _ := netip.AddrFromSlice(f.Reverse.SrcIP)
			return netip.AddrPortFrom(a.Unmap(), f.Reverse.SrcPort)
		}
	}
	return netip.AddrPort{}
}

// staleService creates the nth service of these tests, and a sender for each of its frontends.
func (c *cluster) staleService(n int, client *pod, spec func(*corev1.ServiceSpec)) (*staleService, []*sender) {
	c.t.Helper()
	s := &staleService{cluster: c, a: c.pod(), b: c.pod()}
	external := []string{fmt.Sprintf("198.51.100.%d", n), fmt.Sprintf("2001:db8:1::%d", n)}
	s.balancer = []string{fmt.Sprintf("203.0.113.%d", n), fmt.Sprintf("2001:db8:2::%d", n)}
	both := corev1.IPFamilyPolicyRequireDualStack
	s.svc = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("stale-%d", n)}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: &both, ExternalIPs: external,
		Ports: []corev1.ServicePort{
			{Name: "first", Port: 80, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(targetPort)},
			{Name: "second", Port: 443, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(targetPort)},
		},
	}}
	if spec != nil {
		spec(&s.svc.Spec)
	}
	var err error
	s.svc, err = c.client.CoreV1().Services("default").Create(context.Background(), s.svc, metav1.CreateOptions{})
	c.must(err)
	s.ingress(s.balancer...)
	for _, f := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		c.create(slice(s.svc.Name, corev1.ProtocolUDP, f))
	}
	s.back(on("n1", s.a))
	var all []*sender
	nodePort := intstr.FromInt32(s.svc.Spec.Ports[0].NodePort)
	for i, family := range []string{"IPv4", "IPv6"} {
		node := []string{"192.0.2.1", "2001:db8::1"}[i]
		for at, to := range map[string]string{
			toVIP: net.JoinHostPort(s.svc.Spec.ClusterIPs[i], "80"), toExternal: net.JoinHostPort(external[i], "80"),
			toBalancer: net.JoinHostPort(s.balancer[i], "80"), toNodePort: net.JoinHostPort(node, nodePort.String()),
		} {
			from := c.outside
			if at == toVIP {
				from = client.space
			}
			conn, err := from.dial("udp", to, patience)
			c.must(err)
			c.t.Cleanup(func() { _ = conn.Close() })
			all = append(all, &sender{at: at, family: family, conn: conn})
		}
	}
	for _, one := range all {
		c.eventually(one.family+" "+one.at+" answers", func() bool { return one.ask(50*time.Millisecond) == s.a.name })
	}
	return s, all
}

// check waits until each flow is as the case expects. The senders keep sending, because their flows
// would expire otherwise.
func (s *staleService) check(t *testing.T, tt staleCase, all []*sender) {
	t.Helper()
	for _, one := range all {
		old := netip.AddrPortFrom(s.a.v4, targetPort)
		if one.family == "IPv6" {
			old = netip.AddrPortFrom(s.a.v6, targetPort)
		}
		ends := (tt.end == nil || slices.Contains(tt.end, one.at)) &&
			(tt.families == nil || slices.Contains(tt.families, one.family))
		what := one.family + " flow to the " + one.at
		switch {
		case slices.Contains(tt.mayEnd, one.at):
		case !ends:
			if got := one.to(s.space); got != old {
				t.Errorf("%s: %s goes to %v, want it to stay at %v", tt.reason, what, got, old)
			}
		case tt.follow:
			eventually(t, what+" follows", func() bool { return one.ask(50*time.Millisecond) == s.b.name })
		default:
			eventually(t, what+" ends: "+tt.reason, func() bool {
				one.ask(time.Millisecond)
				return one.to(s.space) != old
			})
		}
	}
}

// settled waits until the proxy has deleted all flows that are stale now. It makes another change
// and waits for its effect, because the proxy handles changes in order.
func (c *cluster) settled(t *testing.T, n int, client *pod) {
	t.Helper()
	s, all := c.staleService(n, client, nil)
	s.back(on("n1", s.b))
	s.check(t, staleCase{reason: "the proxy cleans up", follow: true}, all)
}

// TestStaleFlows removes UDP services in all the ways of staleCases, once while the proxy runs and
// once while it does not. It checks which flows end and where they continue.
func TestStaleFlows(t *testing.T) {
	for _, down := range []bool{false, true} {
		t.Run(map[bool]string{false: "Running", true: "Down"}[down], func(t *testing.T) {
			c := &cluster{node: newNode(t, newSpace(t))}
			c.must(c.in(func() error { // long timeouts, so that no flow expires during the test
				for _, f := range []string{"nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"} {
					if err := os.WriteFile("/proc/sys/net/netfilter/"+f, []byte("7200"), 0o644); err != nil {
						return err
					}
				}
				return nil
			}))
			c.serve()
			stop := c.start(nil)
			client, others := c.pod(), c.others()
			type probe struct {
				*staleService
				staleCase
				name string
				all  []*sender
			}
			var probes []probe
			for name, tt := range staleCases() {
				s, all := c.staleService(len(probes)+1, client, tt.spec)
				probes = append(probes, probe{s, tt, name, all})
			}
			if down {
				stop()
			}
			for _, p := range probes {
				p.change(p.staleService)
			}
			if down {
				c.start(nil)
			}
			c.settled(t, 100, client)
			for _, p := range probes {
				t.Run(p.name, func(t *testing.T) { p.check(t, p.staleCase, p.all) })
			}
			c.stillThere(others)
		})
	}
}

// others creates flows that the proxy must not delete, although they have the port numbers of
// services.
func (c *cluster) others() []*netlink.ConntrackFlow {
	c.t.Helper()
	flow := func(from, to, answer, answerTo string) *netlink.ConntrackFlow {
		f, d, a, b := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to),
			netip.MustParseAddrPort(answer), netip.MustParseAddrPort(answerTo)
		family := uint8(unix.AF_INET)
		if f.Addr().Is6() {
			family = unix.AF_INET6
		}
		return &netlink.ConntrackFlow{
			FamilyType: family, TimeOut: 3600,
			Forward: netlink.IPTuple{Protocol: unix.IPPROTO_UDP, SrcIP: f.Addr().AsSlice(), SrcPort: f.Port(),
				DstIP: d.Addr().AsSlice(), DstPort: d.Port()},
			Reverse: netlink.IPTuple{Protocol: unix.IPPROTO_UDP, SrcIP: a.Addr().AsSlice(), SrcPort: a.Port(),
				DstIP: b.Addr().AsSlice(), DstPort: b.Port()},
		}
	}
	var out []*netlink.ConntrackFlow
	add := func(from, to, answer, answerTo string) { out = append(out, flow(from, to, answer, answerTo)) }
	for port := 30000; port < 32768; port += 1 { // each number that a node port can have
		n := fmt.Sprint(port)
		add("10.244.1.200:7", "10.244.1.201:"+n, "10.244.1.201:"+n, "10.244.1.200:7") // a flow between pods
		// A masqueraded flow to an address outside of the cluster.
		add("10.244.1.200:7", "192.0.2.99:"+n, "192.0.2.99:"+n, "192.0.2.1:7")
		add("127.0.0.1:7", "127.0.0.1:"+n, "127.0.0.1:"+n, "127.0.0.1:7")                 // a flow within the node
		add("[fd44:1::200]:7", "[fd44:1::201]:"+n, "[fd44:1::201]:"+n, "[fd44:1::200]:7") // a flow between pods
	}
	add("192.0.2.2:7", "192.0.2.1:53", "10.244.1.200:5353", "192.0.2.2:7")              // a flow to a host port
	add("[2001:db8::2]:7", "[2001:db8::1]:53", "[fd44:1::200]:5353", "[2001:db8::2]:7") // a flow to a host port
	// Flows at the port number of the services: one between pods, and a masqueraded one.
	add("10.244.1.200:8", "10.244.1.201:80", "10.244.1.201:80", "10.244.1.200:8")
	add("10.244.1.200:8", "192.0.2.99:80", "192.0.2.99:80", "192.0.2.1:8") // a masqueraded flow
	h, err := netlink.NewHandleAt(c.ns, unix.NETLINK_NETFILTER)
	c.must(err)
	defer h.Close()
	for _, f := range out {
		c.must(h.ConntrackCreate(netlink.ConntrackTable, netlink.InetFamily(f.FamilyType), f))
	}
	return out
}

func (c *cluster) stillThere(list []*netlink.ConntrackFlow) {
	c.t.Helper()
	key := func(f *netlink.ConntrackFlow) string {
		t := f.Forward
		return fmt.Sprint(t.SrcIP, t.SrcPort, t.DstIP, t.DstPort)
	}
	there := map[string]bool{}
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		for _, f := range c.flows(family) {
			there[key(f)] = true
		}
	}
	for _, f := range list {
		if !there[key(f)] {
			c.t.Errorf("gone, and not the proxy's: %s", f)
		}
	}
}

// TestFlowsToNowhere lets a client send to an address that is not a frontend. It checks that the
// client reaches the service after the address has become a frontend.
func TestFlowsToNowhere(t *testing.T) {
	c := newCluster(t, nil)
	c.settled(t, 100, c.pod()) // from now on, the kernel tracks connections
	a := c.pod()
	external, balancer := []string{"198.51.100.1", "2001:db8:1::1"}, []string{"203.0.113.1", "2001:db8:2::1"}
	var all []*sender
	for _, to := range []string{"198.51.100.1:80", "[2001:db8:1::1]:80", "203.0.113.1:80", "[2001:db8:2::1]:80",
		"192.0.2.1:30080", "[2001:db8::1]:30080"} {
		conn, err := c.outside.dial("udp", to, patience)
		c.must(err)
		t.Cleanup(func() { _ = conn.Close() })
		one := &sender{conn: conn}
		c.eventually("a flow to nowhere at "+to, func() bool {
			one.ask(time.Millisecond)
			return one.to(c.space) == netip.MustParseAddrPort(to)
		})
		all = append(all, one)
	}
	s := &staleService{cluster: c, a: a}
	both := corev1.IPFamilyPolicyRequireDualStack
	s.svc = c.svc("late", corev1.ProtocolUDP, func(spec *corev1.ServiceSpec) {
		spec.Type, spec.IPFamilyPolicy, spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, &both, external
		spec.Ports[0].NodePort = 30080 // Ports up to 30085 are given to other services only if all others are taken.
	}, on("n1", a))
	c.create(slice("late", corev1.ProtocolUDP, discoveryv1.AddressTypeIPv6, on("n1", a)))
	s.ingress(balancer...)
	for _, one := range all {
		c.eventually(one.conn.RemoteAddr().String()+" answers", func() bool { return one.ask(50*time.Millisecond) == a.name })
	}
}
