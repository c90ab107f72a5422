// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/allocation"
	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/prober"
	"keelson.dev/keelson/pkg/kubelet/restart"
)

// Facts are all data that a decision depends on.
type Facts struct {
	Pod  *v1.Pod
	Seen *cri.Pod
	Now  time.Time
	// Started reports whether a running container has passed its startup probe.
	Started func(id string) bool
	// Failed reports whether a probe requires a restart of a running container.
	Failed func(id string) (prober.Kind, bool)
	// Backoff returns the restart delay of a container.
	Backoff func(c *v1.Container) *restart.Backoff
	// Behind are the resources with which containers still run although other resources were
	// granted.
	Behind map[string]allocation.Had
	// Again are containers that were stopped in order to restart them, whatever their restart
	// policy is.
	Again map[string]bool
}

// Plan is what to do next for a pod that must run.
type Plan struct {
	// Sandbox means that a new sandbox with the number Attempt is needed. The containers of the old
	// sandbox are stopped first.
	Sandbox bool
	Attempt uint32
	// Stop are running containers that must stop.
	Stop []Stop
	// Update are running containers whose resources change.
	Update []Update
	// Start are the containers to start now, in that order.
	Start []*v1.Container
	// Waiting has the reasons why containers are not started, by name.
	Waiting map[string]v1.ContainerStateWaiting
	// Retry is the time at which a back-off ends, if a container waits for one.
	Retry time.Time
	// Done reports whether the pod has finished.
	Done bool
	// Epoch is the epoch of containers that start now; see package restart.
	Epoch int64
}

// Stop is a container to stop, with the text of its event.
type Stop struct {
	Run     *cri.Container
	Spec    *v1.Container
	Message string
	// Again means that the container is restarted whatever its restart policy is.
	Again bool
	// Grace is the grace period in seconds; nil means the pod's. Zero skips the preStop handler.
	Grace *int64
}

const reasonCrashLoop = "CrashLoopBackOff"

// decider holds the state of one call of Decide.
type decider struct {
	Facts
	plan    Plan
	sandbox *cri.Sandbox // the ready sandbox, or nil
	epoch   int64        // epoch of the containers that start now
}

// Decide returns what to do next.
func Decide(f Facts) Plan {
	d := &decider{Facts: f, plan: Plan{Waiting: map[string]v1.ContainerStateWaiting{}},
		epoch: restart.Epoch(f.Pod, f.Seen)}
	d.plan.Epoch = d.epoch
	if b := f.Seen.Sandbox(); b != nil && b.Ready {
		d.sandbox = b
	}
	if d.courseRun() {
		d.plan.Done = true
		return d.plan
	}
	if d.sandbox == nil {
		d.plan.Sandbox = true
		if b := f.Seen.Sandbox(); b != nil {
			d.plan.Attempt = b.Attempt + 1
		}
	} else {
		d.ephemeral()
		if d.leave() {
			return d.plan
		}
	}
	if d.inits() {
		d.mains()
	}
	return d.plan
}

// current returns the run of a container in the ready sandbox, or nil.
func (d *decider) current(name string) *cri.Container {
	run := d.Seen.Latest(name)
	if run == nil || d.sandbox == nil || run.SandboxID != d.sandbox.ID || restart.Before(run, d.epoch) {
		return nil
	}
	return run
}

// leave stops containers of an earlier epoch without a grace period. It reports whether there are
// any.
func (d *decider) leave() bool {
	now := int64(0)
	for _, list := range [][]v1.Container{d.Pod.Spec.InitContainers, d.Pod.Spec.Containers} {
		for i := range list {
			if run := d.Seen.Latest(list[i].Name); run != nil && run.State == cri.Running && restart.Before(run, d.epoch) {
				d.plan.Stop = append(d.plan.Stop, Stop{Run: run, Spec: &list[i], Message: "killing", Grace: &now})
			}
		}
	}
	return len(d.plan.Stop) > 0
}

// isOver reports whether a container will never run again.
func (d *decider) isOver(c *v1.Container, init bool) bool {
	run := d.Seen.Latest(c.Name)
	return run != nil && run.State == cri.Exited && !d.Again[c.Name] && !restart.Before(run, d.epoch) &&
		!restart.ShouldStart(d.Pod, c, run.ExitCode, init) && run.Hash == cri.Hash(c)
}

// courseRun reports whether the pod has finished: none of its containers will run again, or an init
// container failed and will not be retried.
func (d *decider) courseRun() bool {
	for i := range d.Pod.Spec.Containers {
		if !d.isOver(&d.Pod.Spec.Containers[i], false) {
			return d.initFailed()
		}
	}
	return true
}

func (d *decider) initFailed() bool {
	if d.mainStarted() {
		return false
	}
	for i := range d.Pod.Spec.InitContainers {
		c := &d.Pod.Spec.InitContainers[i]
		if !cri.Sidecar(c) && d.isOver(c, true) && d.Seen.Latest(c.Name).ExitCode != 0 {
			return true
		}
	}
	return false
}

// mainStarted reports whether a main container has run in the ready sandbox. Then all init
// containers have finished.
func (d *decider) mainStarted() bool {
	for i := range d.Pod.Spec.Containers {
		if d.current(d.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// inits decides about the init containers. It reports whether the main containers may run.
func (d *decider) inits() bool {
	initialized := d.mainStarted()
	for i := range d.Pod.Spec.InitContainers {
		c := &d.Pod.Spec.InitContainers[i]
		switch {
		case cri.Sidecar(c):
			if !d.sidecar(c) && !initialized {
				return false
			}
		case !initialized && !d.initDone(c):
			return false
		}
	}
	return true
}

// sidecar keeps a restartable init container running. It reports whether the container has started.
func (d *decider) sidecar(c *v1.Container) bool {
	run := d.current(c.Name)
	if run == nil || run.State != cri.Running {
		d.start(c)
		return false
	}
	if d.mustStop(c, run, "Init container") {
		return false
	}
	return d.Started(run.ID)
}

// initDone runs an init container. It reports whether the container has succeeded.
func (d *decider) initDone(c *v1.Container) bool {
	run := d.current(c.Name)
	switch {
	case run != nil && run.State == cri.Running:
		if d.resized(c, run) {
			d.restartWith(c, run)
		}
		return false
	case run != nil && run.State == cri.Exited && run.ExitCode == 0 && !d.Again[c.Name]:
		return true
	}
	d.start(c)
	return false
}

func (d *decider) mains() {
	for i := range d.Pod.Spec.Containers {
		c := &d.Pod.Spec.Containers[i]
		run := d.current(c.Name)
		switch {
		case run != nil && run.State == cri.Running:
			d.mustStop(c, run, "Container")
		case !d.isOver(c, false):
			d.start(c)
		}
	}
}

// mustStop stops a running container whose spec has changed or whose probe failed. It reports
// whether it stopped the container.
func (d *decider) mustStop(c *v1.Container, run *cri.Container, what string) bool {
	stop := Stop{Run: run, Spec: c}
	kind, failed := d.Failed(run.ID)
	switch {
	case run.Hash != cri.Hash(c):
		stop.Message = fmt.Sprintf("%s %s definition changed", what, c.Name)
	case failed && kind == prober.Liveness:
		stop.Message, stop.Grace = fmt.Sprintf("%s %s failed liveness probe", what, c.Name), graceOf(c.LivenessProbe)
	case failed:
		stop.Message, stop.Grace = fmt.Sprintf("%s %s failed startup probe", what, c.Name), graceOf(c.StartupProbe)
	case d.resized(c, run):
		d.restartWith(c, run)
		return true
	default:
		return false
	}
	if restart.ShouldStart(d.Pod, c, 1, cri.Sidecar(c)) {
		stop.Message += ", will be restarted"
	}
	d.plan.Stop = append(d.plan.Stop, stop)
	return true
}

// restartWith restarts a running container that cannot get other resources while it runs.
func (d *decider) restartWith(c *v1.Container, run *cri.Container) {
	d.plan.Stop = append(d.plan.Stop,
		Stop{Run: run, Spec: c, Message: fmt.Sprintf("Container %s resize requires restart", c.Name), Again: true})
}

func graceOf(p *v1.Probe) *int64 {
	if p == nil {
		return nil
	}
	return p.TerminationGracePeriodSeconds
}

// start starts a container, unless its back-off delay has not ended.
func (d *decider) start(c *v1.Container) {
	run := d.Seen.Latest(c.Name)
	// the back-off also applies if the end of the run began the present epoch, because the
	// container may end this one too
	began := d.current(c.Name) != nil || restart.Began(d.Pod, run, d.epoch)
	if run != nil && run.State == cri.Exited && run.Hash == cri.Hash(c) && began && !d.Again[c.Name] {
		b := d.Backoff(c)
		if until := b.Until(run.FinishedAt, d.Now); d.Now.Before(until) {
			d.plan.Waiting[c.Name] = v1.ContainerStateWaiting{
				Reason:  reasonCrashLoop,
				Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", b.Delay(), c.Name, cri.Describe(d.Pod)),
			}
			d.retry(until)
			return
		}
	}
	d.plan.Start = append(d.plan.Start, c)
}

func (d *decider) retry(at time.Time) {
	if d.plan.Retry.IsZero() || at.Before(d.plan.Retry) {
		d.plan.Retry = at
	}
}

// ephemeral starts ephemeral containers that have never run. An ephemeral container runs only once.
func (d *decider) ephemeral() {
	for i := range d.Pod.Spec.EphemeralContainers {
		c := v1.Container(d.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		if d.Seen.Latest(c.Name) == nil {
			d.plan.Start = append(d.plan.Start, &c)
		}
	}
}
