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

// Facts holds all the data on which Decide bases its decision.
type Facts struct {
	Pod  *v1.Pod
	Seen *cri.Pod
	Now  time.Time
	// Started reports whether the running container with this ID has passed its startup probe.
	Started func(id string) bool
	// Failed reports whether a probe of the running container with this ID requires a restart, and
	// which kind of probe.
	Failed func(id string) (prober.Kind, bool)
	// Backoff returns the restart delay of a container.
	Backoff func(c *v1.Container) *restart.Backoff
	// Behind holds, by container name, the resources of running containers that have not been
	// changed yet to the resources that the node has granted.
	Behind map[string]allocation.Had
	// Again holds the names of containers that were stopped in order to start them again. They
	// start even if their restart policy would not restart them.
	Again map[string]bool
}

// Plan is what a worker does next for a pod that should keep running.
type Plan struct {
	// Sandbox means that the pod needs a new sandbox, with the attempt number Attempt. The worker
	// stops the containers of the old sandbox first.
	Sandbox bool
	Attempt uint32
	// Stop lists the running containers that must stop.
	Stop []Stop
	// Update lists the running containers whose resources must change.
	Update []Update
	// Start lists the containers to start now, in the order in which they start.
	Start []*v1.Container
	// Waiting holds the reason for each container that must wait before it starts, by container
	// name.
	Waiting map[string]v1.ContainerStateWaiting
	// Retry is the earliest time at which a waiting container may start. It is zero if no container
	// waits.
	Retry time.Time
	// Done means that the pod has finished, so the worker ends the pod.
	Done bool
	// Epoch is the epoch in which the containers in Start run. A pod's epoch increases each time
	// that all its containers restart; see package restart.
	Epoch int64
}

// Stop describes a running container to stop. Message is the text of the event.
type Stop struct {
	Run     *cri.Container
	Spec    *v1.Container
	Message string
	// Again means that the container starts again afterwards, even if its restart policy would not
	// restart it.
	Again bool
	// Grace is the grace period in seconds. If it is nil, the pod's grace period applies. If it is
	// 0, the preStop handler is skipped.
	Grace *int64
}

const reasonCrashLoop = "CrashLoopBackOff"

// decider holds the state of one call of Decide.
type decider struct {
	Facts
	plan    Plan
	sandbox *cri.Sandbox // the pod's sandbox if it is ready, otherwise nil
	epoch   int64        // the pod's current epoch, in which containers start
}

// Decide returns what to do next for a pod.
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

// current returns the newest run of a container if it belongs to the ready sandbox and the current
// epoch, and otherwise nil.
func (d *decider) current(name string) *cri.Container {
	run := d.Seen.Latest(name)
	if run == nil || d.sandbox == nil || run.SandboxID != d.sandbox.ID || restart.Before(run, d.epoch) {
		return nil
	}
	return run
}

// leave plans to stop the containers that still run since an earlier epoch, with a grace period of
// 0. It reports whether there are any.
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

// isOver reports whether a container has exited and will never run again. init means that it is an
// init container.
func (d *decider) isOver(c *v1.Container, init bool) bool {
	run := d.Seen.Latest(c.Name)
	return run != nil && run.State == cri.Exited && !d.Again[c.Name] && !restart.Before(run, d.epoch) &&
		!restart.ShouldStart(d.Pod, c, run.ExitCode, init) && run.Hash == cri.Hash(c)
}

// courseRun reports whether the pod has finished: either none of its main containers will run
// again, or an init container has failed and will not be retried.
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

// mainStarted reports whether a main container was created in the ready sandbox and in the current
// epoch. If so, all init containers have finished.
func (d *decider) mainStarted() bool {
	for i := range d.Pod.Spec.Containers {
		if d.current(d.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// inits decides what to do with the init containers. It reports whether the main containers may
// run.
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

// sidecar keeps a restartable init container running. It reports whether the container runs and has
// passed its startup probe.
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

// initDone starts an init container if necessary. It reports whether the container has succeeded.
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

// mustStop plans to stop a running container if its spec has changed, a probe has failed or a
// resize requires a restart. It reports whether it has planned a stop.
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

// restartWith plans to restart a running container whose resources cannot be changed while it runs.
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

// start plans to start a container, unless its back-off delay has not ended yet.
func (d *decider) start(c *v1.Container) {
	run := d.Seen.Latest(c.Name)
	// The back-off also applies if the exit of this container began the current epoch: the
	// container may exit in the same way again and restart all containers in a loop.
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

// ephemeral plans to start the ephemeral containers that have never run. An ephemeral container
// runs only once.
func (d *decider) ephemeral() {
	for i := range d.Pod.Spec.EphemeralContainers {
		c := v1.Container(d.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		if d.Seen.Latest(c.Name) == nil {
			d.plan.Start = append(d.plan.Start, &c)
		}
	}
}
