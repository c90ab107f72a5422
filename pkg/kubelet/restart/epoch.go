// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
)

// CanRestartAll reports whether a rule of a container can restart all containers of the pod.
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

// Epoch returns how many times all containers of the pod were restarted, from the first init
// container on. A run carries the epoch that was current when it was created. If a container ends
// the epoch, runs that are being created at that time belong to the old epoch too, and further
// containers that end the same epoch change nothing.
//
// The epoch is computed from the runs themselves, so that it survives a restart of the kubelet. A
// run that ended an epoch proves that the next one has begun. When a container was started in the
// new epoch, its run proves this too, and the run that ended the old epoch may be removed. The
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

// Before reports whether a run belongs to an earlier epoch.
func Before(run *cri.Container, epoch int64) bool { return run != nil && run.Epoch < epoch }

// Began reports whether the end of a run began the epoch.
func Began(pod *v1.Pod, run *cri.Container, epoch int64) bool {
	return run != nil && run.Epoch+1 == epoch && endsEpoch(pod, run)
}

// endsEpoch reports whether a run ended its epoch.
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
