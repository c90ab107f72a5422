// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package worker runs the pods of a node. Every pod has a worker, a goroutine that syncs the pod: it
// compares the pod's state in the runtime with the pod's spec, decides what to do and does it. The
// worker syncs the pod again until nothing is left to do, and whenever the pod in the API, the pod's
// state in the runtime or the result of a probe changes.
//
// The function Decide makes the decision. It is a pure function of the pod's spec and the observed
// state. A restart of the kubelet loses only two things that matter: back-off delays start again,
// and a preStop handler that was called before the restart may be called a second time.
//
// A worker starts containers itself, one after the other. It stops each container in a separate
// goroutine. A second request to stop the same container waits for that goroutine. The pod's status
// is updated with the results of probes even while the worker is busy.
//
// A run of a container is one container in the runtime; each restart creates a new run.
//
// Invariants:
//   - A container starts only in a ready sandbox, after the init containers before it, and never
//     while an earlier run of it is alive.
//   - One kubelet process calls the preStop handler of a run at most once.
//   - A pod runs with the resources that the node has granted. The pod's spec holds the requested
//     resources, package allocation the granted ones, and the pod's status those in effect.
//   - Every pod ends gracefully, with its preStop handlers and its grace period, regardless of why
//     it ends. A later request with a shorter grace period shortens the period that is running.
//   - PreStop handlers run as soon as the pod begins to end. A sidecar is signalled after the main
//     containers and the sidecars that started after it have ended, or at the end of the grace
//     period.
//   - The status of a running container does not change when the kubelet restarts.
//   - Volumes and cgroups are removed only when no container of the pod runs. The pod is deleted
//     from the API only after its volumes and cgroups are removed.
package worker
