// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package eviction keeps a node working when it runs out of memory, disk or process IDs, and ends
// pods that exceed their storage limits.
//
// It compares what is available of each resource with thresholds. A hard threshold takes effect at
// once, a soft one after its grace period. A crossed threshold sets a pressure condition of the
// node, which is held for a while so that it does not change too often. First unused disk space is
// reclaimed. If that is not enough, one pod at a time is evicted in Kubernetes' order: pods that
// use more than they requested come first. Among these, the pods of lowest priority come first, and
// among these the pod that uses most above its request. Critical pods are never evicted.
//
// Which thresholds are crossed (state), which pod is evicted (rank) and the text of the reason
// (message) are pure functions. The Manager only measures and carries out their decisions.
package eviction
