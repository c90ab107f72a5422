// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics compares the metrics that Keelson's processes register with those that Kubernetes
// documents: all metrics of level STABLE and BETA, and the ALPHA metrics that dashboards use.
package metrics
