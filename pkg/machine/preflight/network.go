// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"keelson.dev/keelson/pkg/machine/config"
)

const (
	vxlanPort = 4789
	dnsPort   = 53
	// dnsMetricsPort is the port of the metrics of the DNS forwarder on each node.
	dnsMetricsPort = 9253
)

// listener is a port that a program of the cluster needs.
type listener struct {
	network, host string // host is empty for all addresses
	port          int
	what          string
}

// listeners returns the ports that the machine's programs need.
func (c *checker) listeners() []listener {
	const local = "127.0.0.1"
	out := []listener{
		{"tcp", "", config.KubeletPort, "the kubelet"},
		{"tcp", local, config.ProxyMetricsPort, "the metrics of the proxy"},
		{"tcp", local, config.ProxyHealthPort, "the health checks of the proxy"},
		{"tcp", local, config.AgentPort, "the load balancer of the agent"},
	}
	if c.ControlPlane {
		out = append(out,
			listener{"tcp", "", c.Config.APIServer.Port, "the API server"},
			listener{"tcp", local, config.ControllerManagerPort, "the controller manager"},
			listener{"tcp", local, config.SchedulerPort, "the scheduler"},
			listener{"tcp", "", config.EtcdClientPort, "etcd"},
			listener{"tcp", "", config.EtcdPeerPort, "the other members of etcd"})
	}
	if len(c.Config.Node.Addresses) > 0 {
		node := c.Config.Node.Addresses[0]
		out = append(out, listener{"tcp", node, dnsPort, "the DNS forwarder"}, listener{"udp", node, dnsPort,
			"the DNS forwarder"}, listener{"tcp", "", dnsMetricsPort, "the metrics of the DNS forwarder"})
	}
	if c.Config.Network.Plugin == config.PluginKeelson {
		out = append(out, listener{"udp", "", vxlanPort, "the network between pods (VXLAN)"})
	}
	return out
}

func (c *checker) ports(ctx context.Context) {
	for _, l := range c.listeners() {
		err := c.Listen(ctx, l.network, net.JoinHostPort(l.host, strconv.Itoa(l.port)))
		if !errors.Is(err, syscall.EADDRINUSE) {
			continue // other errors are reported by other checks: without root, or without the address
		}
		where := ""
		if l.host != "" {
			where = " at " + l.host
		}
		c.failf(fmt.Sprintf("Port-%d", l.port),
			fmt.Sprintf("find the program with \"ss -lnp 'sport = :%d'\", and stop it or move it to another port", l.port),
			"the %s port %d%s, for %s, is in use", l.network, l.port, where, l.what)
	}
}

// lookupTime is how long the check of the host name waits for name servers.
const lookupTime = 3 * time.Second

// hostName checks that the node's name does not lead to another machine. A name that does not exist
// does no harm, because machines reach each other by their addresses.
func (c *checker) hostName(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	found, err := c.Lookup(ctx, c.Config.Node.Name)
	if err != nil {
		return
	}
	for _, a := range found {
		a = a.Unmap().WithZone("")
		if a.IsLoopback() || a.IsLinkLocalUnicast() || slices.Contains(c.Config.Node.Addresses, a.String()) || c.has(a) {
			continue
		}
		c.warnf("Hostname", "correct the entry in /etc/hosts or of the name server, or choose another name (--node-name)",
			"the node's name %s is the name of another machine: it has the address %s", c.Config.Node.Name, a)
	}
}

// has reports whether an address belongs to this machine.
func (c *checker) has(a netip.Addr) bool {
	return slices.ContainsFunc(c.Addresses, func(own Address) bool { return own.Addr() == a })
}

func (c *checker) ownAddresses(context.Context) {
	type one struct{ path, text string }
	all := []one{}
	for i, text := range c.Config.Node.Addresses {
		all = append(all, one{fmt.Sprintf("node.addresses[%d]", i), text})
	}
	if advertise := c.Config.APIServer.AdvertiseAddress; c.ControlPlane && !slices.Contains(c.Config.Node.Addresses,
		advertise) {
		all = append(all, one{"apiServer.advertiseAddress", advertise})
	}
	for _, each := range all {
		if a, err := netip.ParseAddr(each.text); err == nil && !c.has(a) {
			c.failf("Addresses", "set it to an address that \"ip address\" shows",
				"%s is %s, but no interface of this machine has this address", each.path, a)
		}
	}
}

// clashes reports ranges of the cluster that contain addresses which this machine reaches otherwise.
func (c *checker) clashes(context.Context) {
	n := c.Config.Network
	for _, r := range []struct {
		path, flag string
		values     []string
	}{
		{"network.podCIDRs", "--pod-network-cidr", n.PodCIDRs}, {"network.serviceCIDRs", "--service-cidr", n.ServiceCIDRs},
	} {
		for _, text := range r.values {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				continue // the configuration is valid
			}
			if other := c.overlapping(p); other != "" {
				c.failf("AddressClash", fmt.Sprintf("choose another range in %s (%s); if an installation that was here before "+
					"has left the address or route, remove it", r.path, r.flag), "%s %s overlaps %s", r.path, p, other)
			}
		}
	}
}

// overlapping returns the first address, route or name server of this machine in a range, or "".
func (c *checker) overlapping(p netip.Prefix) string {
	for _, a := range c.Addresses {
		if p.Overlaps(a.Masked()) {
			return fmt.Sprintf("the network %s of the interface %s", a.Masked(), a.Interface)
		}
	}
	for _, r := range c.Routes {
		if r.Bits() > 0 && p.Overlaps(r.Masked()) {
			return fmt.Sprintf("the route to %s through the interface %s", r.Masked(), r.Interface)
		}
	}
	for line := range strings.Lines(c.text("/etc/resolv.conf")) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err == nil && p.Contains(a) {
			return fmt.Sprintf("the name server %s in /etc/resolv.conf", a)
		}
	}
	return ""
}
