// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package eviction keeps a node working when its memory, disk or process numbers
// run out, and pods within the storage they may use.
//
// What is left of each resource is compared with thresholds: a hard one counts
// at once, a soft one after its grace period. Any that is crossed is a pressure
// condition of the node, which is held for a while after, so that it does not
// flutter. First what nobody uses is given back; if that is not enough one pod
// at a time is ended, in the order of Kubernetes: those that use more than they
// requested first, the least important of them first, the greediest of these
// first. Pods that the node cannot be without are left alone.
//
// Which thresholds count (state), which pod goes (rank) and what is said about it
// (message) are pure; a Manager only carries it out.
package eviction
