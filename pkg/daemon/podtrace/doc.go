// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podtrace puts the spans of several processes into one trace for each pod.
//
// The processes exchange nothing for this, and nothing is written into the pod: the ID of the trace
// and the ID of its root span are computed from the pod's UID. Every process adds spans below the
// root span. The kubelet, which learns last that the pod is ready, exports the root span itself.
//
// Whether a pod is sampled depends only on its UID and the sampling rate, so processes with equal
// rates sample the same pods, and a process with a lower rate samples some of them.
//
// A nil *Tracer records nothing and costs nothing. A Tracer is safe for concurrent use.
// docs/decisions/0033-pod-traces.md has the reasons.
package podtrace
