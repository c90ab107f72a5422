// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package numa decides from which NUMA nodes a pod's CPUs, memory and devices come. It is
// Kubernetes' topology manager.
//
// Each manager of a resource implements Provider. Its Hints list the sets of nodes from which it can
// serve a container, and which of these sets it prefers. The Manager merges the hints of all
// providers according to its policy. Then each provider allocates its resource on the resulting
// nodes. Merging is a pure function.
//
// Layout describes the machine's CPUs, caches, sockets and nodes. It is read from /sys once,
// because the node's resources do not change while the kubelet runs.
package numa
