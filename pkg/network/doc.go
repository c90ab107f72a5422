// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network keeps the pod network of one node: the CNI configuration by which the container
// runtime attaches pods to a bridge (with the plugin of package attach), and the routes to the pods
// of other nodes.
//
// A node with an address on one of this node's links is reached by a plain route through that
// address. Any other node is reached through one VXLAN device with static neighbour and forwarding
// entries, so nothing is learned or flooded. All addresses are derived from the Node objects: the
// hardware address of a node's VXLAN device from the node's name, the device's inner address from
// the node's pod range, and the outer address from the node's addresses.
//
// The decision is a pure function, plan: it computes the wanted device, routes, neighbours and
// forwarding entries from nodes and links. A small executor compares them with the kernel's state
// and changes the differences. Routes carry a protocol number of their own, so that routes to
// deleted nodes are found and removed, also after a restart. Packets that leave the cluster are
// masqueraded by an nftables table of this package; pods and nodes see each other's own addresses.
//
// Everything stays when the process ends, so that pods keep their network while the kubelet
// restarts. The package changes nothing outside of the process's own network namespace.
package network
