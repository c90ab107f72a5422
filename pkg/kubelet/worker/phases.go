// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import "time"

// Phase is a part of a pod's start.
type Phase string

// The phases there are. What of a start belongs to none of them is the kubelet's own work, and its waiting for its turn.
const (
	PhaseVolumes Phase = "volumes" // cgroup, devices and volumes
	PhaseSandbox Phase = "sandbox" // RunPodSandbox: pause container and network
	PhaseImages  Phase = "images"
	PhaseCreate  Phase = "create" // CreateContainer
	PhaseStart   Phase = "start"  // StartContainer
	PhaseHooks   Phase = "hooks"  // postStart handlers
)

// Runtime tells whether the container runtime works in this phase, and the kubelet waits.
func (p Phase) Runtime() bool { return p == PhaseSandbox || p == PhaseCreate || p == PhaseStart }

// Phases are all of them, in their order.
func Phases() []Phase {
	return []Phase{PhaseVolumes, PhaseSandbox, PhaseImages, PhaseCreate, PhaseStart, PhaseHooks}
}

// spend counts the time since begun for a phase of the pod's start. It is of the worker's goroutine alone.
func (w *worker) spend(p Phase, begun time.Time) { w.phases[p] += w.cfg.Clock.Since(begun) }
