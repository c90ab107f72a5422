// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodelifecycle notices nodes that fall silent or are in trouble, and
// keeps pods away from them.
//
// Two steps, each of which can be looked at by itself: a node that has neither
// renewed its Lease nor written its status for the grace period gets the
// condition Unknown; conditions become taints. Time is measured by this process
// alone, from when it saw a change: clocks of nodes do not matter.
//
// Taints that have pods evicted are given out at a rate for each zone, slower or
// not at all while much of the zone is not ready. When no node at all is ready,
// it is more likely that the control plane is cut off: then no pod is evicted.
package nodelifecycle
