// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server is the kubelet's HTTPS API: logs, exec, attach, port-forward, pods, stats and metrics.
package server
