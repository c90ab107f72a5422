// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler gives pending pods nodes.
//
// One goroutine takes pods from the queue and decides; everything that talks to
// the API server (bindings, conditions, evictions, volumes) is carried out
// beside it, so that a decision costs computing only. Verdicts and scores that
// depend on a pod's class and one node alone are kept, and made anew only for
// nodes that have changed since.
//
// Invariants:
//   - A pod whose binding is under way is accounted on its node (assumed); when
//     the binding fails it is taken off again and the pod is tried anew.
//   - What the API server shows wins over what the scheduler assumed.
//   - Nothing is kept that a restart would lose: a nomination is in the pod's
//     status, a plan for volumes in the claims and volumes themselves.
//
// It does not evict pods from nodes that fail, nor look at pods again once they
// are bound: that is the controllers' part.
package scheduler
