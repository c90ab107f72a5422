// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package worker runs the pods of a node. Every pod has a worker, a goroutine that compares the
// pod's state in the runtime with the pod's spec, decides what to do and does it, until nothing is
// left to do. It continues when the pod, its state in the runtime or the result of a probe changes.
//
// Decide makes the decision. It is a pure function of the pod and of what was observed. A worker
// keeps no state that matters and that a restart of the kubelet would lose, with two exceptions:
// back-off delays start again, and a preStop handler may run a second time.
//
// A worker starts containers itself, one after the other. Each stop of a container has a goroutine
// of its own. If there is another reason to stop the same container, it waits for that stop. The
// status follows probes even while the worker is busy.
//
// Invariants:
//   - A container starts only in a ready sandbox, after the init containers before it, and never
//     while an earlier run of it is alive.
//   - In one life of the kubelet a container has at most one call of its preStop handler.
//   - A pod has the resources that the node granted it, not those that it requests: its spec has
//     the requested resources, package allocation the granted ones, and its status those in effect.
//   - Every pod ends gracefully, with its preStop handlers and grace period, whatever ends it. A
//     later request with a shorter grace period shortens the first one.
//   - PreStop handlers run when the pod begins to end. A sidecar is signalled after the main
//     containers and the sidecars behind it have ended, or when the grace period is over.
//   - The status of a running container survives a restart of the kubelet.
//   - Volumes and cgroups are removed only when no container of the pod runs, and the pod is
//     deleted from the API only after these are removed.
package worker
