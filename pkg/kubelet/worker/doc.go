// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package worker brings each pod of the node from what the runtime has of it to
// what its spec asks for. Every pod has one goroutine, which looks, decides and
// acts until nothing is left to do, and again when the pod, the runtime or a
// probe gives it a reason.
//
// What to do next is a pure function, Decide, of the pod and of what was
// observed; nothing is remembered between two looks that a restart of the
// kubelet would lose and that matters: back-off delays are, and begin anew, and so
// may a preStop handler.
//
// Starts are the worker's own business, one after the other. Stops go on by
// themselves, each in a goroutine, and whoever wants the same container to end joins
// them; the status follows the probes also while the worker is busy.
//
// Invariants:
//   - A container is started only in a sandbox that is up, after the init
//     containers before it, and never while an earlier run of it is alive.
//   - A container has at most one preStop handler in one life of the kubelet.
//   - A pod has what the node has given it, not what it asks for: its spec says what
//     is wanted, package allocation what is granted, its status what is so.
//   - A pod that is to end is asked to first: its preStop handlers and grace
//     period are its own, whoever ends it; a shorter period that comes later
//     cuts a longer one short.
//   - PreStop handlers run when the pod's end begins. A sidecar's signal waits until
//     the main containers and the sidecars behind it have ended, or the grace period has.
//   - The status of a running container outlives a restart of the kubelet.
//   - Volumes and cgroups go only when no container of the pod runs, and the pod
//     leaves the API only after them.
package worker
