// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
)

// CanRestartAll reports whether any container has a rule that restarts all containers of the pod.
func CanRestartAll(pod *v1.Pod) bool {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if slices.ContainsFunc(list[i].RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
				return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
			}) {
				return true
			}
		}
	}
	return false
}

// Epoch returns how many times all containers of the pod were restarted. Such a restart happens when
// a container exits with a code for which its rules say RestartAllContainers. It starts a new epoch.
//
// Each run of a container has the number of the epoch in which it was created. Runs that are being
// created when an epoch ends still belong to that epoch. If further containers of that epoch exit in
// the same way, they do not start another epoch.
//
// The epoch is computed from the runs, so that it survives a restart of the kubelet. At first, only
// the run that ended the previous epoch shows that there is a new one. As soon as a container has
// been created in the new epoch, its run shows this too, and the earlier run may be removed. The
// clock is not used.
func Epoch(pod *v1.Pod, seen *cri.Pod) int64 {
	if seen == nil || !CanRestartAll(pod) {
		return 0
	}
	epoch := int64(0)
	for i := range seen.Containers {
		run := &seen.Containers[i]
		if epoch = max(epoch, run.Epoch); endsEpoch(pod, run) {
			epoch = max(epoch, run.Epoch+1)
		}
	}
	return epoch
}

// Before reports whether a run of a container was created before the given epoch: before all
// containers of the pod were last restarted.
func Before(run *cri.Container, epoch int64) bool { return run != nil && run.Epoch < epoch }

// Began reports whether the end of this run made all containers restart, which began the given
// epoch.
func Began(pod *v1.Pod, run *cri.Container, epoch int64) bool {
	return run != nil && run.Epoch+1 == epoch && endsEpoch(pod, run)
}

// endsEpoch reports whether a run exited with a code for which all containers are restarted, which
// ends its epoch.
func endsEpoch(pod *v1.Pod, run *cri.Container) bool {
	if run.State != cri.Exited {
		return false
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == run.Name {
				return rule(&list[i], run.ExitCode) == v1.ContainerRestartRuleActionRestartAllContainers
			}
		}
	}
	return false
}
