// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cell keeps what the scheduler knows of nodes and the pods on them:
// what the API has shown, plus the pods it has itself placed and not yet seen
// back (assumed pods). Nodes stand in a dense array; what a change costs does
// not depend on the number of nodes.
//
// Invariants:
//   - A node's Generation changes whenever anything of it does, and no two
//     states of any nodes ever share a generation.
//   - A pod is accounted on at most one node; an assumed pod stays accounted
//     until it is seen bound, seen deleted, or forgotten.
//
// A Cell is not safe for concurrent use; the scheduler guards it.
package cell
