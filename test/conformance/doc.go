// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance compiles Kubernetes' conformance tests, unmodified, into a test binary. The
// script run.sh runs the binary against a cluster.
package conformance
