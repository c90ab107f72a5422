// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package daemon holds what all of Keelson's processes need: starting and stopping, common flags,
// the log, the connection to the API server, leader election, and the endpoints /healthz, /livez,
// /readyz and /metrics.
//
// It knows nothing about the work of a particular process.
package daemon
