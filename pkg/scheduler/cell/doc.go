// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cell holds the scheduler's picture of all nodes and the pods on them, which is called the
// cell: what the API server has reported, and the pods that the scheduler has placed but the watch
// does not show yet (assumed pods). The cost of a change does not depend on the number of nodes.
//
// Invariants:
//   - A node's Generation changes whenever the node does. Two different states of nodes never have
//     the same generation.
//   - A pod counts on at most one node. An assumed pod counts until the watch shows it bound or
//     deleted, or Forget is called.
//
// A Cell is not safe for concurrent use. The scheduler calls it under its lock.
package cell
