// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocation decides which pods a node accepts, and records the resources granted to each.
//
// Check decides whether a pod can run. It is a pure function of the pod, the pods admitted before
// it and the node. The Manager calls it for one pod at a time, so that of two pods that do not fit
// together exactly one is admitted. A pod counts from its admission until its last container has
// ended; a pod that waits for admission does not count.
//
// Granted resources are stored in a file, because the API contains only the requested resources.
// After a restart of the kubelet a running pod keeps what it was granted.
package allocation
