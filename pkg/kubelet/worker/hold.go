// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/source"
	"keelson.dev/keelson/pkg/restorehold"
)

// reasonHold is the reason of containers that wait because their pod is held.
const (
	reasonHold  = "RestoreHold"
	messageHold = "the pod starts when all nodes have reported after the restore of the cluster, or are fenced"
)

// hold reports whether no container of the pod may start now, because the pod is held, and shows that in
// the pod's status. A pod with a running container goes on. A static pod is never held: only its file has
// its labels, so nothing would release it.
func (w *worker) hold(l *observation) bool {
	held := restorehold.IsHeld(l.pod) && !source.Static(l.pod)
	if !held && !w.holding {
		return false
	}
	w.alive = w.alive || held && l.seen.Running()
	w.holding = held && !restorehold.MayRun(l.pod, w.alive)
	w.showHold(l.pod, w.holding)
	if w.holding {
		w.report(*l, false, false)
	}
	return w.holding
}

// showHold sets the reason why all containers of a held pod wait, or removes it.
func (w *worker) showHold(pod *v1.Pod, held bool) {
	w.shown.mu.Lock()
	defer w.shown.mu.Unlock()
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			switch name := list[i].Name; {
			case held:
				w.shown.waiting[name] = v1.ContainerStateWaiting{Reason: reasonHold, Message: messageHold}
			case w.shown.waiting[name].Reason == reasonHold:
				delete(w.shown.waiting, name)
			}
		}
	}
}
