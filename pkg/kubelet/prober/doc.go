// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prober runs the startup, liveness and readiness probes of containers, and their lifecycle
// handlers.
//
// A probe belongs to one run of a container; the next run starts without results. The other probes
// of a container start after its startup probe has succeeded. A result takes effect once it has
// occurred as many times in a row as the success or failure threshold requires. The Manager then
// calls Config.Changed. After a restart of the kubelet, the result in the pod's status in the API
// remains valid until a probe produces another one (KEP-4781).
//
// The first probe of a run happens as soon as its initial delay is over, not up to a period later.
package prober
