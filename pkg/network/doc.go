// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network maintains the pod network of one node. It writes the CNI configuration with which
// the container runtime attaches pods to a bridge (by the plugin of package attach), and the routes to
// the pods of other nodes.
//
// If another node has an address in the network of one of this node's links, the route to its pods
// goes through that address. All other nodes are reached through one VXLAN device. Its neighbour and
// forwarding entries are static, so that it does not learn addresses or flood packets. All addresses
// are derived from the Node objects: the hardware address of a node's VXLAN device from the node's
// name, the device's inner address from the node's pod range, and the outer address from the node's
// addresses.
//
// The function plan computes the wanted device, routes, neighbour and forwarding entries from nodes
// and links. The type kernel compares them with the kernel's state and changes the differences. The
// routes of this package have a protocol number of their own, by which routes to deleted nodes are
// found and removed, even after a restart. Packets that leave the cluster are masqueraded by an
// nftables table of this package. Packets between pods and nodes keep their source addresses.
//
// Configuration, routes and devices stay when the process ends, so that pods keep their network while
// the kubelet restarts. The package changes nothing outside of the process's network namespace.
package network
