// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
	"keelson.dev/keelson/pkg/kubelet/qos"
	"keelson.dev/keelson/pkg/kubelet/status"
)

// retryResize is how often the worker retries a resize that the node could not grant, and
// retryUndecided how often while the kubelet does not know all pods of the node.
const (
	retryResize    = time.Minute
	retryUndecided = 5 * time.Second
)

// need holds the resources of a container as numbers: CPU in millicores, memory in bytes.
type need struct{ cpuRequest, cpuLimit, memoryRequest, memoryLimit int64 }

func needOf(pod *v1.ResourceRequirements, c v1.ResourceRequirements) need {
	limit := func(name v1.ResourceName) int64 {
		q, ok := c.Limits[name]
		if !ok && pod != nil {
			q = pod.Limits[name]
		}
		if name == v1.ResourceCPU {
			return q.MilliValue()
		}
		return q.Value()
	}
	return need{c.Requests.Cpu().MilliValue(), limit(v1.ResourceCPU), c.Requests.Memory().Value(),
		limit(v1.ResourceMemory)}
}

// Update describes a running container whose resources must change, and the old and new resources.
type Update struct {
	Run  *cri.Container
	Spec *v1.Container
	had  need
	want need
}

// resized plans an update if the resources of a running container must change. It returns true,
// without planning an update, if the container's resize policy requires a restart.
func (d *decider) resized(c *v1.Container, run *cri.Container) (restart bool) {
	had, behind := d.Behind[c.Name]
	if !behind {
		return false
	}
	u := Update{Run: run, Spec: c, had: needOf(had.Pod, had.Container), want: needOf(d.Pod.Spec.Resources, c.Resources)}
	changed := map[v1.ResourceName]bool{
		v1.ResourceCPU:    u.had.cpuRequest != u.want.cpuRequest || u.had.cpuLimit != u.want.cpuLimit,
		v1.ResourceMemory: u.had.memoryRequest != u.want.memoryRequest || u.had.memoryLimit != u.want.memoryLimit,
	}
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy == v1.RestartContainer && changed[p.ResourceName] {
			return true
		}
	}
	d.plan.Update = append(d.plan.Update, u)
	return false
}

// negotiate asks Allocation for the resources in the pod's spec. The sync continues with the pod as
// granted.
func (w *worker) negotiate(l *observation) {
	r := w.cfg.Allocation.Resize(l.pod)
	asked := l.pod
	l.pod, l.behind = r.Pod, r.Behind
	l.resize = status.Resize{Since: r.Since, Error: w.resizeError}
	if r.Granted {
		w.resizeError, l.resize.Error = "", ""
		w.cfg.Event(asked, "", v1.EventTypeNormal, "ResizeStarted",
			resizeMessage("Pod resize started", asked, asked.Generation, ""))
	}
	for name := range r.Behind {
		if run := l.seen.Latest(name); run == nil || run.State != cri.Running {
			// A container that does not run has nothing to change; it starts with the granted
			// resources.
			w.cfg.Allocation.Reached(w.uid, name)
			delete(l.behind, name)
		}
	}
	l.resize.InProgress = len(l.behind) > 0
	l.undecided = r.Undecided
	switch {
	case r.Pending == nil:
		w.refused = 0
	default:
		l.resize.Pending, l.resize.Reason = r.Pending.Message, v1.PodReasonDeferred
		if r.Pending.Reason == v1.PodReasonInfeasible {
			l.resize.Reason = v1.PodReasonInfeasible
		}
		if w.refused != asked.Generation {
			w.refused = asked.Generation
			w.cfg.Event(asked, "", v1.EventTypeWarning, "Resize"+l.resize.Reason,
				resizeMessage("Pod resize "+l.resize.Reason, asked, asked.Generation, r.Pending.Message))
		}
	}
	if w.resizing && !l.resize.InProgress {
		w.cfg.Event(l.pod, "", v1.EventTypeNormal, "ResizeCompleted",
			resizeMessage("Pod resize completed", l.pod, r.Since, ""))
	}
	w.resizing = l.resize.InProgress || r.Granted
}

// resizeMessage returns the text of an event about a resize, in Kubernetes' format. generation is
// the pod's generation that requested the resize.
func resizeMessage(what string, pod *v1.Pod, generation int64, problem string) string {
	type container struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources"`
	}
	summary := struct {
		InitContainers []container `json:"initContainers,omitempty"`
		Containers     []container `json:"containers,omitempty"`
		Generation     int64       `json:"generation"`
		Error          string      `json:"error,omitempty"`
	}{Generation: generation, Error: problem}
	for _, c := range pod.Spec.InitContainers {
		summary.InitContainers = append(summary.InitContainers, container{c.Name, c.Resources})
	}
	for _, c := range pod.Spec.Containers {
		summary.Containers = append(summary.Containers, container{c.Name, c.Resources})
	}
	b, err := json.Marshal(summary)
	if err != nil {
		return what
	}
	return what + ": " + string(b)
}

// update changes the resources of running containers. During the change, the pod's cgroup allows
// the larger of the old and the new limits. The caller retries after an error.
func (w *worker) update(ctx context.Context, l observation, list []Update) error {
	begun := w.cfg.Clock.Now()
	err := w.updateAll(ctx, l, list)
	if w.cfg.Observer != nil {
		w.cfg.Observer.Resized(w.cfg.Clock.Since(begun), err)
	}
	if err == nil {
		w.resizeError = ""
		return nil
	}
	if ctx.Err() == nil && w.resizeError != err.Error() {
		w.resizeError = err.Error()
		w.cfg.Event(l.pod, "", v1.EventTypeWarning, "ResizeError",
			resizeMessage("Pod resize error", l.pod, l.resize.Since, err.Error()))
	}
	return err
}

func (w *worker) updateAll(ctx context.Context, l observation, list []Update) error {
	if err := w.checkMemory(ctx, list); err != nil {
		return err
	}
	if err := w.fit(l); err != nil {
		return fmt.Errorf("cgroup of the pod: %w", err)
	}
	// Update containers whose limits decrease first, because the other containers may get what they
	// free.
	slices.SortStableFunc(list, func(a, b Update) int {
		return cmp.Or(cmp.Compare(a.want.memoryLimit-a.had.memoryLimit, b.want.memoryLimit-b.had.memoryLimit),
			cmp.Compare(a.want.cpuLimit-a.had.cpuLimit, b.want.cpuLimit-b.had.cpuLimit))
	})
	for _, u := range list {
		if err := w.cfg.Runtime.UpdateResources(ctx, u.Run.ID, updated(l.pod, u.Spec, w.node(u.Spec.Name))); err != nil {
			return fmt.Errorf("update container %q: %s", u.Spec.Name, cri.Message(err))
		}
		w.cfg.Allocation.Reached(w.uid, u.Spec.Name)
		delete(l.behind, u.Spec.Name)
	}
	if err := w.fit(l); err != nil {
		return fmt.Errorf("cgroup of the pod: %w", err)
	}
	return nil
}

// fit sets the limits of the pod's cgroup. As long as containers still run with their old
// resources, the limits allow the old as well as the new resources.
func (w *worker) fit(l observation) error {
	if len(l.behind) == 0 {
		return w.cfg.Cgroups.Ensure(l.pod)
	}
	before := l.pod.DeepCopy()
	for _, had := range l.behind {
		before.Spec.Resources = had.Pod
	}
	for _, specs := range [][]v1.Container{before.Spec.InitContainers, before.Spec.Containers} {
		for i := range specs {
			if had, ok := l.behind[specs[i].Name]; ok {
				specs[i].Resources = had.Container
			}
		}
	}
	return w.cfg.Cgroups.Widen(before, l.pod)
}

// updated returns the new resources of a container, without those that cannot change while it runs.
func updated(pod *v1.Pod, c *v1.Container, n qos.Node) *runtimeapi.LinuxContainerResources {
	r := qos.Container(pod, c, n)
	r.OomScoreAdj, r.HugepageLimits, r.Unified = 0, nil, nil
	return r
}

// checkMemory returns an error if an update would set or reduce a memory limit to no more than the
// container uses now. With such a limit, the kernel would kill the container, or reject the limit
// after the limits of other containers were already changed.
func (w *worker) checkMemory(ctx context.Context, list []Update) error {
	var errs []error
	for _, u := range list {
		if u.want.memoryLimit == 0 || u.had.memoryLimit != 0 && u.want.memoryLimit >= u.had.memoryLimit {
			continue
		}
		used, err := w.cfg.Runtime.MemoryUsage(ctx, u.Run.ID)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("missing container %q memory usage", u.Spec.Name))
		case used >= u.want.memoryLimit:
			errs = append(errs, fmt.Errorf(
				"attempting to set container %q memory limit (%d) below current usage (%d)", u.Spec.Name, u.want.memoryLimit, used))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("cannot decrease memory limits: %w", utilerrors.NewAggregate(errs))
}
