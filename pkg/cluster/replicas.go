// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// A cluster has either one control plane, whose API server contains the store, or several control
// planes. These share a separate etcd cluster, and clients reach them through a balancer.

const (
	maxControlPlanes = 3
	// etcdMembers is the number of members of the separate etcd cluster. Three members tolerate the
	// failure of one.
	etcdMembers = 3
	etcd        = "etcd"
)

// replica is one of a cluster's control planes, with the addresses at which its processes listen.
type replica struct {
	// suffix is appended to the names of the control plane's processes. It is empty for a single
	// control plane.
	suffix string
	// bind is the address at which the API server listens, and advertise the address at which pods
	// reach it.
	bind, advertise string
	// local is the address at which the other processes listen. It is a loopback address, so only
	// processes in the cluster's network namespace can connect to it.
	local string
}

// replicated reports whether the cluster has more than one control plane.
func (c *Config) replicated() bool { return c.ControlPlanes > 1 }

// replicas returns the cluster's control planes.
func (c *Config) replicas() []replica {
	first := c.IPFamily.primary()
	if !c.replicated() {
		return []replica{{bind: first.Unspecified().String(), advertise: first.control.String(), local: "127.0.0.1"}}
	}
	out := make([]replica, c.ControlPlanes)
	for i := range out {
		address := above(first.control.String(), i+1)
		out[i] = replica{suffix: fmt.Sprintf("-%d", i+1), bind: address, advertise: address, local: above("127.0.0.1", i)}
	}
	return out
}

// above returns the address that is n higher than the given address.
func above(address string, n int) string {
	a := netip.MustParseAddr(address)
	for range n {
		a = a.Next()
	}
	return a.String()
}

// controlAddresses returns the addresses of the control planes on the nodes' link: first the common
// address, then the address of each control plane.
func (c *Config) controlAddresses() []netip.Addr {
	var out []netip.Addr
	for _, r := range c.IPFamily.ranges() {
		out = append(out, r.control)
	}
	for _, r := range c.replicas() {
		if a := netip.MustParseAddr(r.advertise); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// logsOf returns the paths of the logs of a process, one for each control plane.
func (c *Config) logsOf(name string) []string {
	var out []string
	for _, r := range c.replicas() {
		out = append(out, c.dirs().log(name+r.suffix))
	}
	return out
}

var (
	errOtherPlanes = errors.New("the number of control planes of an existing cluster cannot change")
	errOwnEtcd     = errors.New("the cluster has several control planes and a separate etcd")
)

// settleReplicas sets the number of control planes and the IP family of c to those of the existing
// cluster. It returns an error if c requests other values. It also sets the network plugin and the
// emulated version, if c does not request others.
func settleReplicas(c *Config) error {
	was := Config{}
	if !exists(c.dirs().config()) {
		return nil
	}
	if err := readJSON(c.dirs().config(), &was); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	had := max(was.ControlPlanes, 1)
	if c.ControlPlanes != 0 && c.ControlPlanes != had {
		return fmt.Errorf("%s has %d, want %d: %w", c.DataDir, had, c.ControlPlanes, errOtherPlanes)
	}
	c.ControlPlanes = was.ControlPlanes
	c.NetworkPlugin = cmp.Or(c.NetworkPlugin, was.NetworkPlugin)
	c.EmulatedVersion = cmp.Or(c.EmulatedVersion, was.EmulatedVersion)
	return settleFamily(c, was.IPFamily)
}
