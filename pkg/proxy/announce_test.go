// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apiservice "keelson.dev/api/service"
	"keelson.dev/keelson/pkg/proxy/announce"
)

// TestAnnounce reaches addresses of load balancers from the node's link. The node is the only host
// on the link that can answer for them.
func TestAnnounce(t *testing.T) {
	c := newCluster(t, nil)
	a := c.pod()
	s := c.svc("web", corev1.ProtocolTCP, func(s *corev1.ServiceSpec) {
		s.Type, s.IPFamilyPolicy = corev1.ServiceTypeLoadBalancer, ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}, on("n1", a))
	c.create(slice("web", corev1.ProtocolTCP, discoveryv1.AddressTypeIPv6, on("n1", a)))
	services := c.client.CoreV1().Services("default")
	// A process of the node listens on all addresses of the node. It must not get connections to the
	// addresses of the load balancer.
	other := &pod{space: c.space, name: "node"}
	other.serve()

	give := func(by string, addresses ...string) {
		t.Helper()
		var err error
		s, err = services.Get(context.Background(), "web", metav1.GetOptions{})
		c.must(err)
		s.Annotations = map[string]string{apiservice.AnnouncedBy: by}
		s.Status.LoadBalancer.Ingress = nil
		for _, a := range addresses {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
				corev1.LoadBalancerIngress{IP: a, IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)})
		}
		_, err = services.UpdateStatus(context.Background(), s, metav1.UpdateOptions{})
		c.must(err)
	}
	give("n1", "192.0.2.100", "2001:db8::100")
	for _, to := range []string{"192.0.2.100:80", "[2001:db8::100]:80"} {
		c.reachable(c.outside, to)
		if got, err := c.outside.get(to); err != nil || got.pod != a.name {
			t.Errorf("%s: %v, %v", to, got, err)
		}
	}
	if _, err := c.outside.dial("tcp", "192.0.2.100:8080", 300*time.Millisecond); err == nil {
		t.Error("a port of the node is at the load balancer's address")
	}
	if _, err := c.outside.get("192.0.2.1:8080"); err != nil {
		t.Errorf("the node's own port: %v", err)
	}

	// The load balancer gets another address, which then moves to another node.
	give("n1", "192.0.2.101")
	c.reachable(c.outside, "192.0.2.101:80")
	c.eventually("the other is gone", func() bool { return !c.answersFor("192.0.2.100") })
	give("n2", "192.0.2.101")
	c.eventually("the address is another's", func() bool { return !c.answersFor("192.0.2.101") })

	// A new process takes over the device of the earlier one, and removes addresses that it does
	// not want.
	an, err := announce.Open(int(c.ns))
	c.must(err)
	defer an.Close()
	c.must(an.Set(t.Context(), []netip.Addr{netip.MustParseAddr("192.0.2.102"), netip.MustParseAddr("2001:db8::102")}))
	c.must(an.Remove(t.Context()))
	if _, err := c.h.LinkByName(announce.Device); err == nil {
		t.Error("the device is left")
	}
	c.must(an.Remove(t.Context()))
}

// answersFor reports whether a client on the link, after its neighbour entry is deleted, gets an
// answer from an address.
func (c *cluster) answersFor(addr string) bool {
	c.t.Helper()
	list, err := c.outside.h.NeighList(0, netlink.FAMILY_V4)
	c.must(err)
	for _, n := range list {
		if n.IP.String() == addr {
			// The kernel may already have removed the entry.
			if err := c.outside.h.NeighDel(&n); err != nil && !errors.Is(err, unix.ENOENT) {
				c.t.Fatal(err)
			}
		}
	}
	conn, err := c.outside.dial("tcp", addr+":80", 300*time.Millisecond)
	if err == nil {
		conn.Close()
	}
	return err == nil
}
