// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocation decides which pods the node accepts, and records the resources granted to each
// pod.
//
// Check decides whether the node can run a pod. It is a pure function of the pod, the pods admitted
// earlier and the node. The Manager calls it for one pod at a time: if each of two pods fits on the
// node but not both together, only one of them is admitted. A pod uses resources from its admission
// until all its containers have ended. Pods that are not admitted yet use none.
//
// The granted resources are stored in a file, because the API holds only the requested ones. A
// running pod thus keeps its granted resources when the kubelet restarts.
package allocation
