// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/kubelet/cri"
)

// CanRestartAll tells whether a container's rules may have all of the pod's containers started anew.
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

// Epoch is when a container last ended in a way that has all of the pod's
// containers start anew, from the first init container on; zero if none did. A run
// carries the epoch that was known when it was decided on: what is still being started
// when a container ends belongs to the epoch that ends with it.
//
// It is read out of the runs themselves, so that a kubelet that dies in the midst of it goes on.
func Epoch(pod *v1.Pod, seen *cri.Pod) time.Time {
	var epoch time.Time
	if seen == nil || !CanRestartAll(pod) {
		return epoch
	}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, run := range seen.Containers {
				if run.Name == list[i].Name && run.State == cri.Exited && run.FinishedAt.After(epoch) &&
					rule(&list[i], run.ExitCode) == v1.ContainerRestartRuleActionRestartAllContainers {
					epoch = run.FinishedAt
				}
			}
		}
	}
	return epoch
}

// Before tells whether a run is of an earlier epoch.
func Before(run *cri.Container, epoch time.Time) bool {
	return run != nil && !epoch.IsZero() && run.Epoch.Before(epoch)
}
