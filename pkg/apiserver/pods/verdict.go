// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/api/scheduling/v1alpha1"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// Verdicts handles a VerdictBatch. A verdict is the result of scheduling a pod that has no node: it
// updates the pod's status and may delete other pods (victims). The user has been authorized to
// send the batch. Each write is also authorized, admitted and audited as a request of its own.
func (b *Batch) Verdicts(w http.ResponseWriter, r *http.Request, req *resource.Request) error {
	var batch v1alpha1.VerdictBatch
	if err := accept(w, r, req, &batch); err != nil {
		return err
	}
	if err := bounded(len(batch.Verdicts), v1alpha1.MaxVerdicts, "verdicts"); err != nil {
		return err
	}
	victims := 0
	for i := range batch.Verdicts {
		victims += len(batch.Verdicts[i].Victims)
	}
	if err := bounded(victims, v1alpha1.MaxVictims, "victims"); err != nil {
		return err
	}
	results, from := make([]v1alpha1.VerdictResult, len(batch.Verdicts)), senderOf(r)
	b.each(r.Context(), len(results),
		func(ctx context.Context, i int) { results[i] = b.pass(ctx, from, &batch, &batch.Verdicts[i]) })
	return writeJSON(w, v1alpha1.VerdictBatch{TypeMeta: v1alpha1.TypeMeta(req.Kind.Kind), Results: results})
}

// pass executes a verdict. It writes the nominated node of the pod before it deletes the victims.
// If the server stops in between, the pod still has a reservation for the resources that the
// victims free.
func (b *Batch) pass(ctx context.Context, from *sender, batch *v1alpha1.VerdictBatch,
	v *v1alpha1.Verdict) v1alpha1.VerdictResult {
	out := v1alpha1.VerdictResult{Result: v1alpha1.Result{Code: http.StatusOK}}
	err := b.updateStatus(ctx, from, v)
	if err != nil {
		out.Result = refused(err)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsForbidden(err) {
		for range v.Victims {
			out.Victims = append(out.Victims, out.Result)
		}
		return out
	}
	if v.Event {
		b.writeEvent(ctx, from, &eventsv1.Event{
			ReportingController: batch.ReportingController, ReportingInstance: batch.ReportingInstance,
			Type: corev1.EventTypeWarning, Reason: "FailedScheduling", Action: "Scheduling",
			Regarding: reference(v.PodRef), Note: v.Message,
		})
	}
	for _, victim := range v.Victims {
		out.Victims = append(out.Victims, b.preempt(ctx, from, batch, v, victim))
	}
	return out
}

// preempt deletes a victim and sets the condition DisruptionTarget in its status, in one write.
// Without batches, the scheduler would send two requests: a patch of the status and a delete. So
// both are authorized and audited, as two parts of the batch (see type part). If one of them is not
// allowed, nothing is written.
func (b *Batch) preempt(ctx context.Context, from *sender, batch *v1alpha1.VerdictBatch, v *v1alpha1.Verdict,
	victim v1alpha1.PodRef) v1alpha1.Result {
	kind, related, node := preemptor(v)
	told := statusUpdate(victim, func(pod *corev1.Pod) {
		setCondition(&pod.Status, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
			Message: fmt.Sprintf("%s: preempting to accommodate a higher priority %s", batch.ReportingController,
				kind),
			ObservedGeneration: pod.Generation,
		}, metav1.NewTime(b.Binder.Clock.Now()))
	})
	options := metav1.DeleteOptions{Preconditions: preconditions(victim.UID)}
	status, err := b.begin(ctx, from, ofPod("patch", "status", victim), v)
	deletion, forbidden := b.begin(ctx, from, ofPod("delete", "", victim), options)
	if err = cmp.Or(err, forbidden); err == nil {
		err = b.Binder.Registry().UpdateAndDelete(deletion.ctx, told, options)
	}
	_ = status.ended(http.StatusOK, err)
	if deletion.ended(http.StatusOK, err) != nil {
		return refused(err)
	}
	b.writeEvent(ctx, from, &eventsv1.Event{
		ReportingController: batch.ReportingController, ReportingInstance: batch.ReportingInstance,
		Type: corev1.EventTypeNormal, Reason: "Preempted", Action: "Preempting", Regarding: reference(victim),
		Related: &related,
		Note:    fmt.Sprintf("Preempted by %s %s on node %s", kind, related.UID, node),
	})
	return v1alpha1.Result{Code: http.StatusOK}
}

// preemptor returns what the victims of a verdict are preempted for, and where, as the messages about them
// say it: a pod on its node, or a PodGroup. Kubernetes says that a PodGroup is on the node "cluster".
func preemptor(v *v1alpha1.Verdict) (kind string, ref corev1.ObjectReference, node string) {
	if v.PodGroup == "" {
		return "pod", reference(v.PodRef), v.NominatedNode
	}
	return "podgroup", corev1.ObjectReference{APIVersion: schedulingv1beta1.SchemeGroupVersion.String(), Kind: "PodGroup",
		Namespace: v.Namespace, Name: v.PodGroup, UID: v.PodGroupUID}, "cluster"
}

// updateStatus writes the status of the pod that a scheduler's verdict is about.
func (b *Batch) updateStatus(ctx context.Context, from *sender, v *v1alpha1.Verdict) error {
	p, err := b.begin(ctx, from, ofPod("patch", "status", v.PodRef), v)
	if err == nil {
		_, _, err = b.Binder.Registry().Update(p.ctx, statusUpdate(v.PodRef, func(pod *corev1.Pod) {
			if pod.Spec.NodeName != "" {
				return // the pod was bound after the scheduler had made the verdict
			}
			pod.Status.NominatedNodeName = v.NominatedNode
			if v.Reason != "" {
				setCondition(&pod.Status, corev1.PodCondition{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: v.Reason,
					Message: v.Message, ObservedGeneration: v.Generation,
				}, metav1.NewTime(b.Binder.Clock.Now()))
			}
		}))
	}
	return p.ended(http.StatusOK, err)
}

func statusUpdate(pod v1alpha1.PodRef, change func(*corev1.Pod)) registry.Update {
	return registry.Update{
		Namespace: pod.Namespace, Name: pod.Name, Subresource: "status", Preconditions: preconditions(pod.UID),
		Transform: func(_ context.Context, cur resource.Object) (resource.Object, error) {
			p, ok := cur.(*corev1.Pod)
			if !ok {
				return nil, fmt.Errorf("unexpected object: %T", cur)
			}
			change(p)
			return p, nil
		},
	}
}

func preconditions(uid types.UID) *metav1.Preconditions {
	if uid == "" {
		return nil
	}
	return &metav1.Preconditions{UID: &uid}
}
