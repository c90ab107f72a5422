// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler assigns pending pods to nodes.
//
// One goroutine takes pods from the queue and decides. Everything that calls the API server
// (bindings, conditions, evictions, volumes) runs in other goroutines, so that a decision needs
// computation only. Another goroutine decides about pods that need extenders.
//
// Pods form a class if they get the same results from all plugins that look at one node at a time.
// These results are cached, and computed again only for nodes that have changed.
//
// Invariants:
//   - A pod that is being bound counts on its node (it is assumed). If the binding fails, the pod no
//     longer counts there, and the scheduler tries it again.
//   - The state of the API server replaces what the scheduler assumed.
//   - A restart loses nothing: a nomination is in the pod's status, and a plan for volumes is in the
//     claims and volumes.
//
// The scheduler does not evict pods from failed nodes, and ignores pods once they are bound.
// Controllers handle both.
package scheduler
