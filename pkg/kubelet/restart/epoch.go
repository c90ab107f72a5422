// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
)

// CanRestartAll reports whether a container's rules may have all of the pod's containers started anew.
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

// Epoch is the number of times that the pod's containers had to start anew, all of
// them, from the first init container on. A run carries the epoch that was known when it was
// decided on: what is still being started when a container ends belongs to the epoch
// that ends with it, however many containers end it.
//
// It is read out of the runs themselves, so that a kubelet that dies in the midst of
// it goes on: a run that ended an epoch tells of the next, and once something was started
// in that one, so does its run; who ended the last may then be removed. The clock has
// no part in it.
func Epoch(pod *v1.Pod, seen *cri.Pod) int64 {
	if seen == nil || !CanRestartAll(pod) {
		return 0
	}
	epoch := int64(0)
	for i := range seen.Containers {
		run := &seen.Containers[i]
		if epoch = max(epoch, run.Epoch); ends(pod, run) {
			epoch = max(epoch, run.Epoch+1)
		}
	}
	return epoch
}

// Before reports whether a run is of an earlier epoch.
func Before(run *cri.Container, epoch int64) bool { return run != nil && run.Epoch < epoch }

// Began reports whether the epoch began with the end of a run.
func Began(pod *v1.Pod, run *cri.Container, epoch int64) bool {
	return run != nil && run.Epoch+1 == epoch && ends(pod, run)
}

// ends reports whether a run ended its epoch.
func ends(pod *v1.Pod, run *cri.Container) bool {
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
