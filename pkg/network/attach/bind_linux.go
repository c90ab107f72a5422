// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"keelson.dev/keelson/pkg/network/ports"
)

func addressesOf(given []netip.Prefix) []netip.Addr {
	out := make([]netip.Addr, len(given))
	for i, p := range given {
		out[i] = p.Addr()
	}
	return out
}

// bindingOf returns the addresses from which a pod may send through its port of the bridge. The owner
// is the pod sandbox's interface. Its hardware address is derived from its IP address in the first
// subnet.
func (c *Config) bindingOf(owner types.GCAttachment, addrs []netip.Addr) ports.Binding {
	first := slices.MinFunc(addrs, netip.Addr.Compare)
	for _, a := range addrs {
		if c.Subnets[0].Contains(a) {
			first = a
		}
	}
	return ports.Binding{Port: hostEnd(owner), MAC: hardwareAddr(first), Addresses: addrs}
}

// bind lets a pod send from its addresses, through its port of the bridge, by adding them to the
// nftables table. If the table does not exist, bind creates it, with the addresses of all pods.
func (c *Config) bind(owner types.GCAttachment, given []netip.Prefix) error {
	t, err := ports.Open(0)
	if err != nil {
		return err
	}
	err = t.Bind(c.bindingOf(owner, addressesOf(given)))
	if errors.Is(err, ports.ErrNoTable) {
		_, err = c.restore(t)
	}
	return errors.Join(err, t.Close())
}

func (c *Config) unbind(owner types.GCAttachment, addrs []netip.Addr) error {
	t, err := ports.Open(0)
	if err != nil {
		return err
	}
	return errors.Join(t.Unbind(c.bindingOf(owner, addrs)), t.Close())
}

// restore rewrites the nftables table t, so that the pod behind each port of the bridge can send only
// from the addresses that are allocated to it. It holds the lock of the allocations, so that no
// address is allocated or freed meanwhile.
func (c *Config) restore(t *ports.Table) (changed bool, err error) {
	unlock, err := c.addresses().lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	owners, err := c.addresses().owners()
	if err != nil {
		return false, err
	}
	var all []ports.Binding
	for owner, addrs := range owners {
		all = append(all, c.bindingOf(owner, addrs))
	}
	return t.Restore(all)
}

// Restore writes the nftables table that lets the pods of a network send only from their own
// addresses. It reports whether it changed anything. The kubelet calls it periodically, because
// another program may flush nftables, and earlier versions of the plugin did not write the table.
func Restore(network Config) (changed bool, err error) {
	t, err := ports.Open(0)
	if err != nil {
		return false, err
	}
	changed, err = network.restore(t)
	return changed, errors.Join(err, t.Close())
}
