// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodelifecycle detects nodes that are silent or have problems, and keeps pods away from
// them.
//
// There are two independent steps. A node that has neither renewed its Lease nor written its status
// within the grace period gets the condition Unknown. Conditions are converted to taints. Times are
// measured only with this process's clock, from the moment when it saw a change, so the nodes'
// clocks do not matter.
//
// Taints that evict pods are set at a limited rate for each zone. The rate is lower, or zero, while
// many nodes of the zone are not ready. If no node at all is ready, the control plane is probably
// cut off, and no pod is evicted.
package nodelifecycle
