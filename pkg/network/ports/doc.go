// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ports lets each pod send only from its own addresses. It binds each port of the pods' bridge
// to the hardware and IP addresses of the pod behind that port, in a table in nftables' bridge family.
//
// A frame passes if the combination of its port, source hardware address and source IP address is
// bound. ARP and neighbour discovery messages may only be about bound addresses. All other frames
// from a bound port are dropped: frames with VLAN tags or other protocols, router advertisements,
// redirects, queries for multicast groups, and answers of DHCP servers. From or to link-local
// addresses only neighbour discovery and group reports pass, because network policies do not apply
// to these addresses.
//
// The rules never change; ports and addresses are elements of sets. A pod needs a few elements, and
// a frame from a bound source needs one lookup, whatever the number of pods. Ports that are in no
// binding, such as those of other bridges, are not filtered.
//
// The table filters frames that arrive at a port. It does not check the frames that the node itself
// sends into the bridge.
package ports
