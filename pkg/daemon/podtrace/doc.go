// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podtrace puts the spans of several processes into one trace for each pod.
//
// The processes need not exchange any data for this, and the pod is not changed: the ID of the
// trace and the ID of its root span are computed from the pod's UID. Every process adds its spans
// as children of the root span. The kubelet is the last process to find out that the pod is ready,
// so it exports the root span itself.
//
// Whether a pod is sampled depends only on its UID and on the sampling rate. Processes with equal
// rates therefore sample the same pods, and a process with a lower rate samples a subset of them.
//
// A nil *Tracer does nothing. A Tracer is safe for concurrent use.
// docs/decisions/0033-pod-traces.md has the reasons.
package podtrace
