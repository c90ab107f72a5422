// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package daemon holds what Keelson's processes share as processes: beginning and end, flags of
// the same name and meaning, the log, the connection to the API server, leader
// election, and the endpoints /healthz, /livez, /readyz and /metrics.
//
// It knows nothing of what a process does.
package daemon
