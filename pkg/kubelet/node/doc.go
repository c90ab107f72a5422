// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node registers the Node object and keeps its status and Lease up to date.
//
// The status is written when it changes, and otherwise every Config.ReportPeriod. Between these
// writes, renewals of the Lease show that the kubelet is running. Labels and taints are set at
// registration. Changes that other clients make later are kept, except changes to labels that the
// kubelet sets: it sets these again each time it starts.
package node
