// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memory reserves memory and huge pages of NUMA nodes for containers. It is Kubernetes'
// memory manager. With the policy None, it reserves nothing. The rest of this text is about the
// policy Static.
//
// Each container of a Guaranteed pod gets its memory from as few NUMA nodes as possible, and the
// kernel allocates its memory only there. Each node is used in one of two ways: reservations are made
// on it alone, or on one fixed set of nodes that includes it. It is never used in both ways, so that
// reserved memory is always available. Other containers have no reservations.
//
// Reservations are stored in a file in the format of Kubernetes' kubelet. If the file does not match
// the machine or the configuration, the kubelet does not start.
package memory
