// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package numa decides which NUMA nodes a pod's CPUs, memory and devices come from: Kubernetes'
// topology manager.
//
// A manager of a resource is a Provider. Its Hints list the sets of nodes from which it could serve
// a container, and which of them it prefers. The Manager merges the hints of all providers
// according to its policy, and then each provider allocates on the resulting nodes. Merging is a
// pure function.
//
// Layout describes the machine's CPUs, caches, sockets and nodes. It is read from /sys once,
// because the node's resources do not change while the kubelet runs.
package numa
