// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics compares the metrics that the processes register with those that Kubernetes
// documents: all STABLE and BETA ones, and the ALPHA ones that dashboards need.
package metrics
