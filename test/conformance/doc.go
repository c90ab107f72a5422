// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance compiles the Conformance suite of Kubernetes, unmodified,
// into a test binary. run.sh runs it against a cluster.
package conformance
