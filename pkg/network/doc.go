// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network keeps the pod network of one node: the CNI configuration by which the
// container runtime attaches pods to a bridge (by the plugin of package attach), and the way to
// the pods of the other nodes.
//
// A node whose address is on one of this node's links is reached by a plain route through that
// address. Any other is reached through one VXLAN device, with static neighbour and forwarding entries, so that
// nothing is learned or flooded. Everything is derived from the node objects: the hardware address of a node's
// VXLAN device from the node's name, its inner address from the node's pod range, the outer one
// from the node's addresses.
//
// The decision is a pure function, plan: from nodes and links to the wanted device, routes,
// neighbours and forwarding entries. A small executor compares that with the kernel's state and
// changes what differs. Routes carry a protocol number of their own, so that those of nodes that
// are gone are found and removed, also after a restart. What leaves the cluster is masqueraded
// by an nftables table of our own; pods and nodes see each other's own addresses.
//
// What is made stays when the process ends: pods keep their network while the kubelet restarts. Nothing outside
// the process's own network namespace is touched.
package network
