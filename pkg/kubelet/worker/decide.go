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

// Facts are what a decision is made from.
type Facts struct {
	Pod  *v1.Pod
	Seen *cri.Pod
	Now  time.Time
	// Started tells whether a running container has passed its startup probe.
	Started func(id string) bool
	// Failed tells whether a probe wants a running container restarted.
	Failed func(id string) (prober.Kind, bool)
	// Backoff is the restart delay of a container.
	Backoff func(c *v1.Container) *restart.Backoff
	// Behind is what containers run with that are given something else now.
	Behind map[string]allocation.Had
	// Again are containers that were stopped to be started anew, whatever their restart policy is.
	Again map[string]bool
}

// Plan is what to do next for a pod that is to run.
type Plan struct {
	// Sandbox tells that a new sandbox is needed, with that number; what is left
	// of the old one is to be stopped first.
	Sandbox bool
	Attempt uint32
	// Stop are running containers that must not go on.
	Stop []Stop
	// Update are running containers to give other resources to.
	Update []Update
	// Start are the containers to start now, in that order.
	Start []*v1.Container
	// Waiting tells why containers are not started.
	Waiting map[string]v1.ContainerStateWaiting
	// Retry is when a back-off ends, if one is running.
	Retry time.Time
	// Done tells that the pod has run its course.
	Done bool
	// Epoch is what containers that are started now belong to.
	Epoch int64
}

// Stop is a container to stop, with the text of its event.
type Stop struct {
	Run     *cri.Container
	Spec    *v1.Container
	Message string
	// Again has it started anew whatever its restart policy is.
	Again bool
	// Grace is how long it may take; nil means the pod's grace period. Zero runs no preStop handler.
	Grace *int64
}

const reasonCrashLoop = "CrashLoopBackOff"

// decider is a decision in the making.
type decider struct {
	Facts
	plan    Plan
	sandbox *cri.Sandbox // that is up, or nil
	epoch   int64        // in which containers start now
}

// Decide returns what to do next.
func Decide(f Facts) Plan {
	d := &decider{Facts: f, plan: Plan{Waiting: map[string]v1.ContainerStateWaiting{}}, epoch: restart.Epoch(f.Pod, f.Seen)}
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

// current is the run of a container in the sandbox that is up, or nil.
func (d *decider) current(name string) *cri.Container {
	run := d.Seen.Latest(name)
	if run == nil || d.sandbox == nil || run.SandboxID != d.sandbox.ID || restart.Before(run, d.epoch) {
		return nil
	}
	return run
}

// leave ends what still runs of an earlier epoch, at once, and tells whether there is something.
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

// over tells whether a container will never run again.
func (d *decider) over(c *v1.Container, init bool) bool {
	run := d.Seen.Latest(c.Name)
	return run != nil && run.State == cri.Exited && !d.Again[c.Name] && !restart.Before(run, d.epoch) && !restart.Should(d.Pod, c, run.ExitCode, init) && run.Hash == cri.Hash(c)
}

// courseRun tells whether all containers are over, or one that the others wait for failed for good.
func (d *decider) courseRun() bool {
	for i := range d.Pod.Spec.Containers {
		if !d.over(&d.Pod.Spec.Containers[i], false) {
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
		if !cri.Sidecar(c) && d.over(c, true) && d.Seen.Latest(c.Name).ExitCode != 0 {
			return true
		}
	}
	return false
}

// mainStarted tells whether a container got its turn in the present sandbox:
// then the init containers are behind it.
func (d *decider) mainStarted() bool {
	for i := range d.Pod.Spec.Containers {
		if d.current(d.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// inits deals with the init containers and tells whether the others may run.
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

// sidecar keeps a restartable init container running and tells whether it has started.
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

// initDone runs an init container and tells whether it has succeeded.
func (d *decider) initDone(c *v1.Container) bool {
	run := d.current(c.Name)
	switch {
	case run != nil && run.State == cri.Running:
		if d.resized(c, run) {
			d.anew(c, run)
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
		case !d.over(c, false):
			d.start(c)
		}
	}
}

// mustStop has a running container stopped whose image has changed or whose probe failed.
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
		d.anew(c, run)
		return true
	default:
		return false
	}
	if restart.Should(d.Pod, c, 1, cri.Sidecar(c)) {
		stop.Message += ", will be restarted"
	}
	d.plan.Stop = append(d.plan.Stop, stop)
	return true
}

// anew has a running container stopped that cannot be given other resources while it runs, and started with them.
func (d *decider) anew(c *v1.Container, run *cri.Container) {
	d.plan.Stop = append(d.plan.Stop, Stop{Run: run, Spec: c, Message: fmt.Sprintf("Container %s resize requires restart", c.Name), Again: true})
}

func graceOf(p *v1.Probe) *int64 {
	if p == nil {
		return nil
	}
	return p.TerminationGracePeriodSeconds
}

// start has a container started, unless it has to wait out its back-off.
func (d *decider) start(c *v1.Container) {
	run := d.Seen.Latest(c.Name)
	began := d.current(c.Name) != nil || restart.Began(d.Pod, run, d.epoch) // what ends an epoch may do so again
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

// ephemeral has containers started that never ran; they run once.
func (d *decider) ephemeral() {
	for i := range d.Pod.Spec.EphemeralContainers {
		c := v1.Container(d.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		if d.Seen.Latest(c.Name) == nil {
			d.plan.Start = append(d.plan.Start, &c)
		}
	}
}
