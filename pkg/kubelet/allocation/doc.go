// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocation decides which pods a node takes, and keeps what each of
// them was given.
//
// Whether a pod can run is a pure function, Check, of the pod, the pods that were
// admitted before it, and the node. The Manager asks it for one pod at a time, so
// that two pods that fit only singly are not both taken, nor both refused: a pod
// counts from its admission to the end of its last container, and one that still
// waits for its admission does not count.
//
// What a pod was given is kept in a file, because the API shows only what it asks
// for; a pod that ran before the kubelet's restart is given the same again.
package allocation
