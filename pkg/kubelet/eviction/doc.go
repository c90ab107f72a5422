// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package eviction keeps a node working when it runs out of memory, disk space or process IDs. It
// also ends pods that exceed their storage limits.
//
// It compares the available amount of each resource with thresholds. A hard threshold takes effect
// immediately, and a soft threshold after its grace period. While a threshold is crossed, a
// pressure condition of the node is true. The condition stays true for a while afterwards, so that
// it does not change too often.
//
// If disk space runs out, unused images are removed first. If this is not enough, one pod at a time
// is evicted, in Kubernetes' order: pods that use more than they request come first; among these,
// pods with the lowest priority; and among these, the pod that exceeds its request the most.
// Critical pods are never evicted.
//
// Which thresholds are crossed (state.go), which pod is evicted (rank.go) and the text of the
// message (message.go) are pure functions. The Manager only measures and carries out the decisions.
package eviction
