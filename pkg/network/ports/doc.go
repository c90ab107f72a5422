// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ports binds each port of the pods' bridge to the addresses of the pod behind it, by a table of nftables'
// bridge family.
//
// A frame passes if its port, its hardware address and its IP source are bound together. ARP and neighbour discovery must
// speak for bound addresses alone. Everything else that comes from a bound port is dropped: VLAN tags, other protocols, router
// advertisements, redirects, queries for multicast groups, and answers of DHCP servers. Between link-local
// addresses only what finds neighbours and reports group members passes, because network policies do not know these addresses.
//
// The rules never change; ports and addresses are elements of sets. A pod costs a few elements, and a frame of a
// bound source one lookup, whatever the number of pods. Ports that were never bound, such as those of other bridges, are left alone.
//
// The table sees what comes in by a port. What the node sends into the bridge is not checked.
package ports
