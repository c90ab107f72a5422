// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prober runs the startup, liveness and readiness probes of containers, and their lifecycle
// handlers.
//
// A probe belongs to one run of a container; the next run starts without results. Until the startup
// probe has succeeded, the other probes of the container wait. A result takes effect after as many
// equal answers in a row as the threshold requires, and the kubelet is notified of each change. If
// an earlier kubelet process probed the run, its result in the API is valid until a probe has
// another result (KEP-4781).
//
// The first probe of a run happens as soon as its initial delay is over, not up to a period later.
package prober
