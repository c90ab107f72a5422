// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster makes whole clusters on one machine: certificates, kubeconfig
// files, the control plane's processes, and node hosts, each a namespace set of
// its own with its own containerd, kubelet and proxy.
//
// Three kinds of process take part, all of them the ctl binary:
//
//   - the command that a person runs ([Up], [Down], ...). It prepares files and
//     talks to the others; it holds nothing.
//   - the supervisor ([Supervise]), one per cluster. It is born in the cluster's
//     own network namespace, keeps the control plane running there, starts node
//     hosts and joins them by a bridge, and answers on a Unix socket. When it
//     dies, everything of the cluster dies with it.
//   - the node host ([HostNode]), one per node: the init of the node's process
//     tree. It arranges the node's mounts and network and keeps containerd,
//     kubelet and proxy running. Killing it is pulling the node's plug.
//
// Invariants:
//
//   - The machine's own network namespace, mounts and sysctls are not touched. A
//     cluster has one listening socket on the machine's loopback, and no route
//     leads from the cluster to the machine's network.
//   - All that a cluster writes is below its data directory and, for what must
//     not outlive the machine's boot, below /run/keelson/NAME.
//   - Everything is found again from the data directory: up on an existing one
//     goes on with the same certificates, objects and images.
//
// The package knows the API only as a client.
package cluster
