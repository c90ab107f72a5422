// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ports binds each port of the pods' bridge to the addresses of the pod behind it, with a
// table in nftables' bridge family.
//
// A frame passes if its port, hardware address and IP source are bound together. ARP and neighbour
// discovery messages may only be about bound addresses. Everything else from a bound port is
// dropped: VLAN tags, other protocols, router advertisements, redirects, queries for multicast
// groups, and answers of DHCP servers. Between link-local addresses only neighbour discovery and
// group reports pass, because network policies do not know these addresses.
//
// The rules never change; ports and addresses are elements of sets. A pod costs a few elements, and
// a frame from a bound source costs one lookup, whatever the number of pods. Ports that were never
// bound, such as those of other bridges, are not filtered.
//
// The table filters frames that come in by a port. It does not check what the node itself sends
// into the bridge.
package ports
