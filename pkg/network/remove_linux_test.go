// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"keelson.dev/keelson/pkg/nft"
	"keelson.dev/keelson/test/unshare"
)

// TestRemoveLinks checks that the bridge, its ports and the devices of bandwidth limits are removed,
// and no other links.
func TestRemoveLinks(t *testing.T) {
	unshare.Need(t)
	named := func(name string) netlink.LinkAttrs { return netlink.LinkAttrs{Name: name} }
	links := []netlink.Link{
		&netlink.Bridge{LinkAttrs: named(bridgeName)},
		&netlink.Veth{LinkAttrs: named("port"), PeerName: "pod"},
		&netlink.Veth{LinkAttrs: named("other"), PeerName: "other-peer"},
		&netlink.Bridge{LinkAttrs: named(bandwidthPrefix + "-other")},
	}
	want := []string{"other", "other-peer", bandwidthPrefix + "-other"}
	// Other tests of this package leave a bridge in the namespace that all tests share.
	if old, err := netlink.LinkByName(bridgeName); err == nil {
		if err := netlink.LinkDel(old); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range links {
		if err := netlink.LinkAdd(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := netlink.LinkSetMaster(links[1], links[0]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = netlink.LinkDel(links[2]), netlink.LinkDel(links[3]) })
	for range 2 {
		if err := removeLinks(); err != nil {
			t.Fatal(err)
		}
	}
	have, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range have {
		want = slices.DeleteFunc(want, func(name string) bool { return name == l.Attrs().Name })
		if slices.Contains([]string{bridgeName, "port", "pod"}, l.Attrs().Name) {
			t.Errorf("%s remains", l.Attrs().Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("%q are removed", want)
	}
}

// TestRemovePortmap checks that the tables of host ports are removed, and no other tables.
func TestRemovePortmap(t *testing.T) {
	unshare.Need(t)
	conn, err := nft.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ours := &nftables.Table{Name: portmapTable, Family: nftables.TableFamilyIPv6}
	other := &nftables.Table{Name: "other", Family: nftables.TableFamilyIPv4}
	conn.AddTable(ours)
	conn.AddTable(other)
	if err := conn.Commit(nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.DelTable(other)
		_ = conn.Commit(nil)
	})
	for range 2 {
		if err := removePortmap(); err != nil {
			t.Fatal(err)
		}
	}
	for table, want := range map[*nftables.Table]bool{ours: false, other: true} {
		if got, err := conn.Present(table); err != nil || got != want {
			t.Errorf("%s exists: %t, %v, want %t", table.Name, got, err, want)
		}
	}
}
