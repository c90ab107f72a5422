// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodelifecycle detects nodes that send no heartbeats or report problems, and keeps pods
// away from them with taints.
//
// It works in two independent steps. First, if a node has neither renewed its Lease nor written its
// status within the grace period, the controller sets its conditions to Unknown. Second, it
// converts the conditions of all nodes to taints. It measures times only with the clock of this
// process, from the moment when it saw a change, so the clocks of the nodes do not matter.
//
// The controller limits the rate at which it adds taints that evict pods, for each zone. It uses a
// lower rate, or zero, while many nodes of the zone are not ready. If no node at all is ready, the
// control plane is probably cut off from the nodes, and no pod is evicted.
package nodelifecycle
