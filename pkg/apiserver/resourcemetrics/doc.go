// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcemetrics answers metrics.k8s.io/v1beta1: what nodes and the containers of
// pods use of processors and memory now, for "kubectl top" and the horizontal pod autoscaler.
//
// Nothing is collected ahead of time. Whoever asks has the kubelets asked that have the
// answer, some at a time, and what they said is good for a few seconds for all who ask.
// It is in JSON only, and cannot be watched. A node whose kubelet does not answer, and a
// container that has not run long enough, are left out.
package resourcemetrics
