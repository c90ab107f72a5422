// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tainteviction

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	applyresourcev1 "k8s.io/client-go/applyconfigurations/resource/v1"

	"keelson.dev/keelson/pkg/devicetaints"
)

// statusPeriod is the shortest time between two changes of the condition of a rule whose
// specification has not changed.
const statusPeriod = 10 * time.Second

// syncRule updates the condition EvictionInProgress of a DeviceTaintRule.
func (c *devices) syncRule(ctx context.Context, name string) error {
	rule, err := c.rules.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	now, was := c.Clock.Now(), metav1.Condition{}
	if found := meta.FindStatusCondition(rule.Status.Conditions,
		resourcev1.DeviceTaintConditionEvictionInProgress); found != nil {
		was = *found
		left := statusPeriod - now.Sub(was.LastTransitionTime.Time)
		if was.ObservedGeneration == rule.Generation && left > 0 {
			c.queue.AddAfter(name, left)
			return nil
		}
	}
	effects, err := c.effectsOf(rule)
	if err != nil {
		return err
	}
	next := conditionOf(rule, effects)
	next.LastTransitionTime = was.LastTransitionTime
	if equality.Semantic.DeepEqual(next, was) {
		return nil
	}
	// As in Kubernetes, the time is that of the last change of any field.
	next.LastTransitionTime = metav1.NewTime(now)
	condition := applymetav1.Condition().WithType(next.Type).WithStatus(next.Status).WithReason(next.Reason).
		WithMessage(next.Message).WithObservedGeneration(next.ObservedGeneration).
		WithLastTransitionTime(next.LastTransitionTime)
	_, err = c.Client.ResourceV1().DeviceTaintRules().ApplyStatus(ctx, applyresourcev1.DeviceTaintRule(name).
		WithUID(rule.UID).WithStatus(applyresourcev1.DeviceTaintRuleStatus().WithConditions(condition)),
		metav1.ApplyOptions{FieldManager: DevicesName, Force: true})
	if err != nil {
		return fmt.Errorf("condition of rule: %w", err)
	}
	return nil
}

// effects has the numbers that the condition of a rule shows.
type effects struct {
	// published and allocated are the numbers of devices that the rule selects. They are set only for the
	// effect None.
	published, allocated int
	// pods is the number of pods that the rule evicts, or would evict if its effect were NoExecute.
	// namespaces is the number of their namespaces.
	pods, namespaces int
	// evicted is the number of pods that the controller has evicted because of the rule.
	evicted int
}

func (c *devices) effectsOf(rule *resourcev1.DeviceTaintRule) (effects, error) {
	e := effects{evicted: c.evictedBy(rule)}
	switch rule.Spec.Taint.Effect {
	case resourcev1.DeviceTaintEffectNone:
		e.published, e.allocated = c.selected(rule)
	case resourcev1.DeviceTaintEffectNoExecute:
	default:
		return e, nil
	}
	pods, err := c.pods.List(labels.Everything())
	if err != nil {
		return e, err
	}
	namespaces := map[string]bool{}
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && pod.Spec.NodeName != "" && c.evicts(rule, pod) {
			e.pods++
			namespaces[pod.Namespace] = true
		}
	}
	e.namespaces = len(namespaces)
	return e, nil
}

// evicts reports whether a rule is a reason to evict a pod, now or later, provided that the rule's
// effect is NoExecute.
func (c *devices) evicts(rule *resourcev1.DeviceTaintRule, pod *v1.Pod) bool {
	taint := rule.Spec.Taint
	taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	for _, claim := range c.usedBy(pod) {
		for i := range claim.Status.Allocation.Devices.Results {
			r := &claim.Status.Allocation.Devices.Results[i]
			if !devicetaints.Selects(rule, r.Driver, r.Pool, r.Device) {
				continue
			}
			if _, forever := devicePatience(taint, r.Tolerations); !forever {
				return true
			}
		}
	}
	return false
}

// rulesAgainst returns the rules that are reasons to evict a pod.
func (c *devices) rulesAgainst(pod *v1.Pod) []*resourcev1.DeviceTaintRule {
	if c.rules == nil {
		return nil
	}
	rules, err := c.rules.List(labels.Everything())
	if err != nil {
		return nil // cannot happen: the list of a cache returns no error
	}
	return slices.DeleteFunc(slices.Clone(rules), func(r *resourcev1.DeviceTaintRule) bool {
		return r.Spec.Taint.Effect != resourcev1.DeviceTaintEffectNoExecute || !c.evicts(r, pod)
	})
}

// selected returns the numbers of published and of allocated devices that a rule selects. Of a pool, only
// the newest generation counts.
func (c *devices) selected(rule *resourcev1.DeviceTaintRule) (published, allocated int) {
	newest := map[string]int64{}
	counts := map[string]int{}
	for _, o := range c.slices.List() {
		s := o.(*resourcev1.ResourceSlice)
		pool := poolKey(s.Spec.Driver, s.Spec.Pool.Name)
		if last, known := newest[pool]; !known || s.Spec.Pool.Generation > last {
			newest[pool], counts[pool] = s.Spec.Pool.Generation, 0
		} else if s.Spec.Pool.Generation < last {
			continue
		}
		for i := range s.Spec.Devices {
			if devicetaints.Selects(rule, s.Spec.Driver, s.Spec.Pool.Name, s.Spec.Devices[i].Name) {
				counts[pool]++
			}
		}
	}
	for _, n := range counts {
		published += n
	}
	for _, o := range c.claimCache.List() {
		claim := o.(*resourcev1.ResourceClaim)
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if devicetaints.Selects(rule, r.Driver, r.Pool, r.Device) {
				allocated++
			}
		}
	}
	return published, allocated
}

// conditionOf returns the condition EvictionInProgress of a rule, without its time.
func conditionOf(rule *resourcev1.DeviceTaintRule, e effects) metav1.Condition {
	out := metav1.Condition{Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: metav1.ConditionFalse,
		ObservedGeneration: rule.Generation}
	switch rule.Spec.Taint.Effect {
	case resourcev1.DeviceTaintEffectNoExecute:
		switch {
		case e.pods > 0:
			out.Status, out.Reason = metav1.ConditionTrue, "PodsPendingEviction"
			out.Message = plural(e.pods, "pod needs", "pods need") + " to be evicted in " +
				plural(e.namespaces, "namespace", "different namespaces") + "."
		case e.evicted > 0:
			out.Reason = "Completed"
		default:
			out.Reason = "NotStarted"
		}
	case resourcev1.DeviceTaintEffectNone:
		out.Reason = "NoEffect"
		out.Message = plural(e.published, "published device", "published devices") + " selected. " +
			plural(e.allocated, "allocated device", "allocated devices") + " selected. " +
			plural(e.pods, "pod", "pods") + " would be evicted in " +
			plural(e.namespaces, "namespace", "different namespaces") + " if the effect was NoExecute. " +
			"This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
	default:
		out.Reason, out.Message = "OtherEffect", "Eviction only happens for the NoExecute effect."
	}
	if e.evicted > 0 {
		if out.Message != "" {
			out.Message += " "
		}
		out.Message += plural(e.evicted, "pod", "pods") + " evicted since starting the controller."
	}
	return out
}

// plural returns a number and a noun.
func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
