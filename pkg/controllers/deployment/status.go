// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// Reasons of conditions, with the names that Kubernetes uses.
const (
	reasonNewSet      = "NewReplicaSetCreated"
	reasonFound       = "FoundNewReplicaSet"
	reasonUpdated     = "ReplicaSetUpdated"
	reasonComplete    = "NewReplicaSetAvailable"
	reasonTimedOut    = "ProgressDeadlineExceeded"
	reasonCreateError = "ReplicaSetCreateError"
	reasonPaused      = "DeploymentPaused"
	reasonResumed     = "DeploymentResumed"
	reasonAvailable   = "MinimumReplicasAvailable"
	reasonUnavailable = "MinimumReplicasUnavailable"
)

func condition(t appsv1.DeploymentConditionType, s v1.ConditionStatus, reason,
	message string) appsv1.DeploymentCondition {
	return appsv1.DeploymentCondition{Type: t, Status: s, Reason: reason, Message: message}
}

func conditionOf(s *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// putCondition sets a condition. Its update time is now, and its transition time changes to now
// only if its status changes. putCondition does nothing if the condition already has this status
// and reason.
func putCondition(s *appsv1.DeploymentStatus, c appsv1.DeploymentCondition, now time.Time) {
	c.LastUpdateTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	old := conditionOf(s, c.Type)
	if old != nil && old.Status == c.Status && old.Reason == c.Reason {
		return
	}
	if old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	dropCondition(s, c.Type)
	s.Conditions = append(s.Conditions, c)
}

func dropCondition(s *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == t })
}

func (w *work) setCondition(c appsv1.DeploymentCondition) {
	putCondition(&w.d.Status, c, w.Clock.Now())
}

// setFound sets the Progressing condition if there is none: it says that the ReplicaSet of the
// present template was found.
func (w *work) setFound() {
	if conditionOf(&w.d.Status, appsv1.DeploymentProgressing) == nil && w.hasDeadline() {
		w.setCondition(w.foundCondition())
	}
}

const neverTimesOut = 1<<31 - 1

// hasDeadline reports whether the Deployment has a progress deadline. Without a deadline it has no
// Progressing condition.
func (w *work) hasDeadline() bool {
	p := w.d.Spec.ProgressDeadlineSeconds
	return p != nil && *p != neverTimesOut
}

// checkPaused updates the Progressing condition and writes the status if the Deployment was paused
// or resumed.
func (w *work) checkPaused(ctx context.Context) error {
	if !w.hasDeadline() {
		return nil
	}
	c := conditionOf(&w.d.Status, appsv1.DeploymentProgressing)
	if c != nil && c.Reason == reasonTimedOut {
		return nil // keep the condition, because a timeout is more important to users
	}
	shown := c != nil && c.Reason == reasonPaused
	switch {
	case w.d.Spec.Paused && !shown:
		w.setCondition(pausedCondition())
	case !w.d.Spec.Paused && shown:
		w.setCondition(condition(appsv1.DeploymentProgressing, v1.ConditionUnknown, reasonResumed, "Deployment is resumed"))
	default:
		return nil
	}
	got, err := w.Client.AppsV1().Deployments(w.d.Namespace).UpdateStatus(ctx, w.d, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	w.d = got
	return nil
}

// totals returns the status with the sums over all ReplicaSets, without conditions.
func (w *work) totals() appsv1.DeploymentStatus {
	s := appsv1.DeploymentStatus{ObservedGeneration: w.d.Generation, CollisionCount: w.d.Status.CollisionCount}
	terminating := int32(0)
	for _, set := range w.sets {
		s.Replicas += set.Status.Replicas
		s.ReadyReplicas += set.Status.ReadyReplicas
		s.AvailableReplicas += set.Status.AvailableReplicas
		if n := set.Status.TerminatingReplicas; n != nil {
			terminating += *n
		}
	}
	s.TerminatingReplicas = &terminating
	if w.newest != nil {
		s.UpdatedReplicas = w.newest.Status.Replicas
	}
	s.UnavailableReplicas = max(replicas(w.sets)-s.AvailableReplicas, 0)
	return s
}

// complete reports whether a rollout is complete: the Deployment has as many pods as its size, and
// all of them have the present template and are available.
func complete(d *appsv1.Deployment, s appsv1.DeploymentStatus) bool {
	want := *d.Spec.Replicas
	return s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want &&
		s.ObservedGeneration >= d.Generation
}

// progressed reports whether the new status s is closer to a complete rollout than old.
func progressed(old, s *appsv1.DeploymentStatus) bool {
	return s.UpdatedReplicas > old.UpdatedReplicas || s.Replicas-s.UpdatedReplicas < old.Replicas-old.UpdatedReplicas ||
		s.ReadyReplicas > old.ReadyReplicas || s.AvailableReplicas > old.AvailableReplicas
}

func (w *work) writeStatus(ctx context.Context) error {
	s := w.totals()
	s.Conditions = slices.Clone(w.d.Status.Conditions)
	if err := w.availability(&s); err != nil {
		return err
	}
	w.setProgressing(&s)
	w.setFailure(&s)
	known, err := w.deployments.Deployments(w.d.Namespace).Get(w.d.Name)
	same := err == nil && known.ResourceVersion == w.d.ResourceVersion &&
		known.Annotations[annotationRevision] == w.d.Annotations[annotationRevision]
	if same && equality.Semantic.DeepEqual(known.Status, s) {
		return nil
	}
	next := w.d.DeepCopy()
	next.Status = s
	if _, err := w.Client.AppsV1().Deployments(next.Namespace).UpdateStatus(ctx, next,
		metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}

// joinStatus writes the status, which has a condition for err. It returns err, joined with the
// error of the write if the write fails.
func joinStatus(ctx context.Context, w *work, err error) error {
	return errors.Join(err, w.writeStatus(ctx))
}

func (w *work) availability(s *appsv1.DeploymentStatus) error {
	_, unavailable, err := limits(w.d)
	if err != nil {
		return err
	}
	c := condition(appsv1.DeploymentAvailable, v1.ConditionFalse, reasonUnavailable,
		"Deployment does not have minimum availability.")
	if s.AvailableReplicas >= *w.d.Spec.Replicas-unavailable {
		c = condition(appsv1.DeploymentAvailable, v1.ConditionTrue, reasonAvailable, "Deployment has minimum availability.")
	}
	putCondition(s, c, w.Clock.Now())
	return nil
}

// setProgressing sets the Progressing condition, and queues the Deployment for the time when its
// progress deadline passes.
func (w *work) setProgressing(s *appsv1.DeploymentStatus) {
	if !w.hasDeadline() {
		dropCondition(s, appsv1.DeploymentProgressing)
		return
	}
	now := w.Clock.Now()
	name := fmt.Sprintf("Deployment %q", w.d.Name)
	if w.newest != nil {
		name = fmt.Sprintf("ReplicaSet %q", w.newest.Name)
	}
	c := conditionOf(s, appsv1.DeploymentProgressing)
	if c != nil && !w.ofTemplate(c) {
		restamp(s, c, w.begunCondition(), now)
		c = conditionOf(s, appsv1.DeploymentProgressing)
	}
	done := condition(appsv1.DeploymentProgressing, v1.ConditionTrue, reasonComplete, name+" has successfully progressed.")
	switch {
	case complete(w.d, *s):
		if c == nil || c.Reason != done.Reason || c.Message != done.Message {
			restamp(s, c, done, now)
		}
	case c != nil && c.Reason == reasonComplete && s.Replicas == s.UpdatedReplicas:
		// The rollout is complete. Later changes of its pods do not count as another rollout.
	case progressed(&w.d.Status, s):
		updated := condition(appsv1.DeploymentProgressing, v1.ConditionTrue, reasonUpdated, name+" is progressing.")
		restamp(s, c, updated, now)
	case w.timedOut(c, now):
		putCondition(s, condition(appsv1.DeploymentProgressing, v1.ConditionFalse, reasonTimedOut,
			name+" has timed out progressing."), now)
	}
	w.awaitDeadline(conditionOf(s, appsv1.DeploymentProgressing), now)
}

// ofTemplate reports whether the Progressing condition c is about the present template. Clients
// rely on that if status.observedGeneration is the present generation. A message that names the
// ReplicaSet of the present template is about that template. A message that names the Deployment
// was written before there was a ReplicaSet, and is about the generation in the status. The
// conditions for paused and resumed Deployments are valid for every template.
func (w *work) ofTemplate(c *appsv1.DeploymentCondition) bool {
	switch {
	case c.Reason == reasonPaused || c.Reason == reasonResumed:
		return true
	case strings.Contains(c.Message, strconv.Quote(w.setName())):
		return true
	}
	return strings.HasPrefix(c.Message, fmt.Sprintf("Deployment %q ", w.d.Name)) &&
		w.d.Status.ObservedGeneration >= w.d.Generation
}

// begunCondition returns the Progressing condition for the start of a template's rollout.
func (w *work) begunCondition() appsv1.DeploymentCondition {
	switch {
	case w.d.Spec.Paused:
		return pausedCondition()
	case w.newest == nil:
		return condition(appsv1.DeploymentProgressing, v1.ConditionTrue, reasonUpdated,
			fmt.Sprintf("Deployment %q is progressing.", w.d.Name))
	}
	return w.foundCondition()
}

// pausedCondition returns the Progressing condition of a paused Deployment.
func pausedCondition() appsv1.DeploymentCondition {
	return condition(appsv1.DeploymentProgressing, v1.ConditionUnknown, reasonPaused, "Deployment is paused")
}

// foundCondition returns the Progressing condition for a template that already has a ReplicaSet.
func (w *work) foundCondition() appsv1.DeploymentCondition {
	return condition(appsv1.DeploymentProgressing, v1.ConditionTrue, reasonFound,
		fmt.Sprintf("Found new replica set %q", w.newest.Name))
}

// restamp sets condition c with the update time now, even if it is unchanged. The progress deadline
// counts from the update time. old is the present condition, or nil if there is none.
func restamp(s *appsv1.DeploymentStatus, old *appsv1.DeploymentCondition, c appsv1.DeploymentCondition, now time.Time) {
	c.LastUpdateTime, c.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
	if old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	dropCondition(s, c.Type)
	s.Conditions = append(s.Conditions, c)
}

func (w *work) deadline() time.Duration {
	return time.Duration(*w.d.Spec.ProgressDeadlineSeconds) * time.Second
}

func (w *work) timedOut(c *appsv1.DeploymentCondition, now time.Time) bool {
	if c == nil || c.Reason == reasonComplete || c.Reason == reasonPaused {
		return false
	}
	return c.Reason == reasonTimedOut || c.LastUpdateTime.Add(w.deadline()).Before(now)
}

func (w *work) awaitDeadline(c *appsv1.DeploymentCondition, now time.Time) {
	if c == nil || w.d.Spec.Paused || c.Reason == reasonComplete || c.Reason == reasonTimedOut {
		return
	}
	left := c.LastUpdateTime.Add(w.deadline()).Sub(now)
	w.queue.AddAfter(controller.Key(w.d), max(left, 0)+time.Second)
}

// setFailure copies the ReplicaFailure condition of the first ReplicaSet that has it. The condition
// says why the ReplicaSet cannot create or delete pods.
func (w *work) setFailure(s *appsv1.DeploymentStatus) {
	for _, set := range append([]*appsv1.ReplicaSet{w.newest}, w.old...) {
		if set == nil {
			continue
		}
		for _, c := range set.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == v1.ConditionTrue {
				putCondition(s, condition(appsv1.DeploymentReplicaFailure, v1.ConditionTrue, c.Reason, c.Message), w.Clock.Now())
				return
			}
		}
	}
	dropCondition(s, appsv1.DeploymentReplicaFailure)
}
