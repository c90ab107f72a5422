// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package numa decides on which NUMA nodes of a machine a pod's CPUs, memory and
// devices are to be: Kubernetes' topology manager.
//
// Who gives away a resource is a Provider: it says by Hints on which sets of nodes
// it could give what a container asks for, and which of these sets it prefers. The
// Manager merges the hints of all of them by its policy, and has each of them give
// on the nodes that came out. Merging is a pure function.
//
// Layout is what a machine's CPUs, caches, sockets and nodes are; it is read from
// /sys once, because Kubernetes' resources do not change while a kubelet runs.
package numa
