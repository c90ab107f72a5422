// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package daemon has what all of Keelson's processes need: starting and stopping, common flags,
// logging, the connection to the API server, leader election, and the endpoints /healthz, /livez,
// /readyz and /metrics.
//
// It contains no code that is specific to one process.
package daemon
