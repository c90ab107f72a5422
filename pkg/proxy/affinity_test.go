// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"testing"
	"time"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/nft"
)

// remembered returns the elements of the affinity set: the clients whose endpoint is stored for
// session affinity, with the remaining time.
func (c *cluster) remembered(conn *nft.Conn) []nftables.SetElement {
	c.t.Helper()
	affinity, err := conn.GetSetByName(&nftables.Table{Name: "keelson-proxy", Family: nftables.TableFamilyIPv4},
		"affinity")
	c.must(err)
	elements, err := conn.GetSetElements(affinity)
	c.must(err)
	return elements
}

// TestSessionAffinityExpires checks that a client that sends nothing for the timeout may get
// another endpoint, and that a client that connects earlier keeps its endpoint for another timeout.
func TestSessionAffinityExpires(t *testing.T) {
	c := newCluster(t, nil)
	conn, err := nft.Open(int(c.ns))
	c.must(err)
	defer conn.Close()
	client, seconds := c.pod(), int32(2)
	s := c.svc("brief", corev1.ProtocolTCP, func(s *corev1.ServiceSpec) {
		s.SessionAffinity = corev1.ServiceAffinityClientIP
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}, on("n1", c.pod()), on("n1", c.pod()), on("n1", c.pod()), on("n1", c.pod()))
	c.reachable(client.space, vip(s))
	first, err := client.get(vip(s))
	c.must(err)

	var left time.Duration
	c.eventually("half of the time gone", func() bool {
		e := c.remembered(conn)
		if len(e) == 1 {
			left = e[0].Expires
		}
		return len(e) == 0 || left < time.Second
	})
	_, err = client.get(vip(s))
	c.must(err)
	if e := c.remembered(conn); len(e) == 1 && (e[0].Expires <= left || e[0].Timeout != 2*time.Second) {
		t.Errorf("a client that came back is known for %v of %v, before it did for %v", e[0].Expires, e[0].Timeout, left)
	}
	c.eventually("another endpoint", func() bool {
		c.eventually("forgotten", func() bool { return len(c.remembered(conn)) == 0 })
		got, err := client.get(vip(s))
		c.must(err)
		return got.pod != first.pod
	})
}
