// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memory reserves memory and huge pages of NUMA nodes for containers: Kubernetes' memory
// manager with its static policy.
//
// The containers of Guaranteed pods get their memory from as few nodes as possible, and the kernel
// allocates their memory only there. A NUMA node is used either for reservations on this node alone
// or for reservations on one set of nodes, never for both, so that reserved memory is always
// available. Other containers have no reservations.
//
// Reservations are stored in a file with the format of Kubernetes' kubelet. If the file does not
// match the machine or the configuration, the kubelet does not start.
package memory
