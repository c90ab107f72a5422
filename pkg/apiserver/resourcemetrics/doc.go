// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcemetrics serves metrics.k8s.io/v1beta1: the current CPU and memory usage of nodes
// and of containers, for "kubectl top" and the horizontal pod autoscaler.
//
// Usage is not collected in advance. For each request, the handler requests the summaries of the
// kubelets that have the data, several at a time. It caches each summary for a few seconds, for all
// requests. Answers are JSON only, and watches are not supported. Answers omit nodes whose kubelets
// do not answer, and containers that have not run long enough.
package resourcemetrics
