// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcemetrics serves metrics.k8s.io/v1beta1: the current CPU and memory usage of nodes
// and of containers, for "kubectl top" and the horizontal pod autoscaler.
//
// Nothing is collected in advance. A request reads the kubelets that have the data, several at a
// time, and their answers are cached for a few seconds for all requests. Answers are JSON only, and
// watches are not supported. Nodes whose kubelets do not answer, and containers that have not run
// long enough, are omitted.
package resourcemetrics
