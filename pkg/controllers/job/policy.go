// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// ruling is the result of applying a job's pod failure policy to a failed pod.
type ruling struct {
	action  batchv1.PodFailurePolicyAction
	matched bool   // whether a rule of the policy matched
	message string // the reason for the job's failure, if the action is FailJob
}

// counts reports whether the failure of the pod counts towards the job's failure limits.
func (r ruling) counts() bool { return r.action != batchv1.PodFailurePolicyActionIgnore }

// applyPolicy applies the first rule of the policy that matches a failed pod. If no rule matches,
// the action is Count.
func applyPolicy(policy *batchv1.PodFailurePolicy, pod *v1.Pod) ruling {
	if policy == nil {
		return ruling{action: batchv1.PodFailurePolicyActionCount}
	}
	for i := range policy.Rules {
		rule := &policy.Rules[i]
		var what string
		if rule.OnExitCodes != nil {
			c := exited(&pod.Status, rule.OnExitCodes)
			if c == nil {
				continue
			}
			what = fmt.Sprintf("Container %s for pod %s/%s failed with exit code %v", c.Name, pod.Namespace,
				pod.Name, c.State.Terminated.ExitCode)
		} else {
			c := conditioned(&pod.Status, rule.OnPodConditions)
			if c == nil {
				continue
			}
			what = fmt.Sprintf("Pod %s/%s has condition %v", pod.Namespace, pod.Name, c.Type)
		}
		r := ruling{action: rule.Action, matched: true}
		if r.action == batchv1.PodFailurePolicyActionFailJob {
			r.message = fmt.Sprintf("%s matching %v rule at index %d", what, rule.Action, i)
		}
		return r
	}
	return ruling{action: batchv1.PodFailurePolicyActionCount}
}

// exited returns the first container that ended with an exit code that matches the rule, or nil if
// there is no such container.
func exited(status *v1.PodStatus, rule *batchv1.PodFailurePolicyOnExitCodesRequirement) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses} {
		for i := range list {
			c := &list[i]
			if c.State.Terminated == nil || c.State.Terminated.ExitCode == 0 || rule.ContainerName != nil &&
				*rule.ContainerName != c.Name {
				continue
			}
			listed := slices.Contains(rule.Values, c.State.Terminated.ExitCode)
			if listed == (rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
				return c
			}
		}
	}
	return nil
}

func conditioned(status *v1.PodStatus, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern) *v1.PodCondition {
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if slices.ContainsFunc(patterns, func(p batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
			return p.Type == c.Type && p.Status == c.Status
		}) {
			return c
		}
	}
	return nil
}

// meets reports whether the succeeded indexes fulfil a rule of the success policy, and returns the
// message for the condition.
func meets(policy *batchv1.SuccessPolicy, completions int, succeeded indexes) (string, bool) {
	if policy == nil || len(succeeded) == 0 {
		return "", false
	}
	for i, rule := range policy.Rules {
		have, all := succeeded.count(), -1
		if rule.SucceededIndexes != nil {
			wanted := parseIndexes(*rule.SucceededIndexes, completions)
			if len(wanted) == 0 {
				continue
			}
			have, all = succeeded.common(wanted), wanted.count()
		}
		if have == all || rule.SucceededCount != nil && have >= int(*rule.SucceededCount) {
			return fmt.Sprintf("Matched rules at index %d", i), true
		}
	}
	return "", false
}
