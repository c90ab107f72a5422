// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodelifecycle notices nodes that fall silent or are in trouble, keeps
// pods away from them, and ends the pods on them that do not put up with it.
//
// Three steps, each of which can be looked at by itself: a node that has neither
// renewed its Lease nor written its status for the grace period gets the
// condition Unknown; conditions become taints; pods are deleted when they have
// not tolerated a NoExecute taint for as long as they would. Time is measured by
// this process alone, from when it saw a change: clocks of nodes do not matter.
//
// When no node at all is heard of, it is more likely that the control plane is
// cut off: then no pod is evicted.
package nodelifecycle
