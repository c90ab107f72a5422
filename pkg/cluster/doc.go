// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster creates whole clusters on one machine: the control plane's processes, and node
// hosts. A node host is a group of Linux namespaces on the machine, with its own containerd, kubelet
// and proxy. The package provision writes the files that these programs need, and knows their flags.
//
// Three kinds of processes take part. All of them run the program ctl:
//
//   - the command that a user runs ([Up], [Down], ...). It prepares files and sends requests to the
//     other two; it keeps no state.
//   - the supervisor ([Supervise]), one for each cluster. It starts in the cluster's own network
//     namespace, keeps the control plane running there, starts node hosts, connects them by a
//     bridge, and serves the control socket. If it ends, the kernel kills all processes of the cluster.
//   - the node host ([HostNode]), one for each node: the init of the node's process tree. It sets
//     up the node's mounts and network and keeps containerd, kubelet and proxy running. Killing it
//     has the effect of a power failure of the node.
//
// Invariants:
//
//   - The machine's own network namespace, mounts and sysctls are not changed. A cluster has one
//     listening socket on the machine's loopback address, and no route leads from the cluster to
//     the machine's network.
//   - Everything that a cluster writes is below its data directory or, if it must not outlive a
//     reboot of the machine, below /run/keelson/NAME.
//   - The data directory is the whole state: if it exists already, Up continues with its
//     certificates, objects and images.
//
// The package uses the API only as a client.
package cluster
