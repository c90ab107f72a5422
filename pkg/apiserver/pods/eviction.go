// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// maxDisrupted is the maximum number of evicted pods in the status of a disruption budget. The
// disruption controller removes a pod from the status once it has processed the eviction.
const maxDisrupted = 2000

// Evicter deletes pods if their disruption budgets allow it.
type Evicter struct {
	Registry func() *registry.Registry // returns the registry of pods
	Client   kubernetes.Interface
	Clock    clock.Clock
}

// Creator returns the handler of the subresource eviction of pods.
func (e *Evicter) Creator() *resource.Creator {
	return &resource.Creator{New: func() runtime.Object { return &policyv1.Eviction{} }, Create: e.create}
}

func retries() wait.Backoff {
	return wait.Backoff{Steps: 20, Duration: 500 * time.Millisecond, Factor: 1.0, Jitter: 0.1}
}

// eviction is a request for the eviction of a pod.
type eviction struct {
	*Evicter
	namespace, name string
	options         *metav1.DeleteOptions
	dryRun          bool
}

func (e *Evicter) create(ctx context.Context, req *resource.Request, obj runtime.Object,
	validate resource.ValidateFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	ev, ok := obj.(*policyv1.Eviction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Eviction object: %T", obj))
	}
	if req.Name != ev.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	if ev.DeleteOptions != nil && ptr.Deref(ev.DeleteOptions.IgnoreStoreReadErrorWithClusterBreakingPotential, false) {
		return nil, apierrors.NewInvalid(policyv1.SchemeGroupVersion.WithKind("Eviction").GroupKind(), req.Name,
			field.ErrorList{
				field.Invalid(field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"),
					true, "can not be set for pod eviction, try after removing the option"),
			})
	}
	del, err := deleteOptions(ev, options)
	if err != nil {
		return nil, err
	}
	if err := validate(ctx, ev); err != nil {
		return nil, err
	}
	if err := req.CheckKey(req.Name); err != nil {
		return nil, err
	}
	x := &eviction{e, req.Namespace, req.Name, del, len(del.DryRun) > 0}
	if err := x.run(ctx); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// deleteOptions returns the options with which the pod is deleted. If ev has options, their dryRun
// must be that of the request.
func deleteOptions(ev *policyv1.Eviction, options *metav1.CreateOptions) (*metav1.DeleteOptions, error) {
	if ev.DeleteOptions == nil {
		return &metav1.DeleteOptions{DryRun: options.DryRun}, nil
	}
	if len(ev.DeleteOptions.DryRun) == 0 {
		ev.DeleteOptions.DryRun = options.DryRun
		return ev.DeleteOptions.DeepCopy(), nil
	}
	if len(options.DryRun) > 0 && fmt.Sprint(options.DryRun) != fmt.Sprint(ev.DeleteOptions.DryRun) {
		// This is Kubernetes' message.
		return nil, fmt.Errorf("Non-matching dry-run options in request and content: %v and %v", options.DryRun,
			ev.DeleteOptions.DryRun)
	}
	return ev.DeleteOptions.DeepCopy(), nil
}

// conditional reports whether the client requires a certain revision or UID of the pod. If so, the
// deletion is not retried after a conflict, because the pod is then no longer the one that the
// client required.
func (x *eviction) conditional() bool {
	return x.hasVersion() || x.options.Preconditions != nil && x.options.Preconditions.UID != nil
}

// hasVersion reports whether the client requires a certain revision of the pod.
func (x *eviction) hasVersion() bool {
	return x.options.Preconditions != nil && x.options.Preconditions.ResourceVersion != nil
}

func (x *eviction) run(ctx context.Context) error {
	var pod *corev1.Pod
	deleted := false
	err := retry.OnError(retries(), func(err error) bool {
		return apierrors.IsConflict(err) &&
			!x.conditional()
	}, func() error {
		var err error
		if pod, err = x.Client.CoreV1().Pods(x.namespace).Get(ctx, x.name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !unguarded(pod) {
			return nil
		}
		options := x.options
		if !ended(pod) && !x.hasVersion() {
			// If the pod becomes ready before it is deleted, the budget protects it. Then this revision
			// causes a conflict.
			options = atVersion(options, pod.ResourceVersion)
		}
		if err := x.delete(ctx, options); err != nil {
			return err
		}
		deleted = true
		return nil
	})
	if err != nil || deleted {
		return err
	}
	budget, exact, err := x.ask(ctx, pod)
	if err != nil {
		return err
	}
	options := x.options
	if exact {
		options = atVersion(options, pod.ResourceVersion)
	}
	err = x.delete(ctx, options)
	if apierrors.IsConflict(err) && exact && !x.hasVersion() {
		return stillProcessing(budget)
	}
	return err
}

// unguarded reports whether a pod can be evicted without a budget, because it is pending, has ended
// or is being deleted.
func unguarded(pod *corev1.Pod) bool {
	return ended(pod) || pod.Status.Phase == corev1.PodPending
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func atVersion(options *metav1.DeleteOptions, version string) *metav1.DeleteOptions {
	out := options.DeepCopy()
	if out.Preconditions == nil {
		out.Preconditions = &metav1.Preconditions{}
	}
	out.Preconditions.ResourceVersion = &version
	return out
}

// ask subtracts the eviction from the pod's budget. If the budget allows evictions of pods that are
// not ready and the pod is not ready, ask subtracts nothing and exact is true. The pod may then be
// deleted only at its current revision: if it has become ready in the meantime, the budget protects
// it.
func (x *eviction) ask(ctx context.Context, pod *corev1.Pod) (budget string, exact bool, err error) {
	pdb, err := x.budget(ctx, pod)
	if err != nil || pdb == nil {
		return "", false, err
	}
	if !ready(pod) {
		if p := pdb.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
			return pdb.Name, true, nil
		}
		if pdb.Status.CurrentHealthy >= pdb.Status.DesiredHealthy && pdb.Status.DesiredHealthy > 0 {
			return pdb.Name, true, nil
		}
	}
	refresh := false
	err = retry.RetryOnConflict(retries(), func() error {
		if refresh {
			if pdb, err = x.Client.PolicyV1().PodDisruptionBudgets(x.namespace).Get(ctx, pdb.Name,
				metav1.GetOptions{}); err != nil {
				return err
			}
		}
		refresh = true
		return x.spend(ctx, pod, pdb.DeepCopy())
	})
	if wait.Interrupted(err) {
		err = apierrors.NewTimeoutError(fmt.Sprintf("couldn't update PodDisruptionBudget %q due to conflicts", pdb.Name), 10)
	}
	return pdb.Name, false, err
}

// budget returns the budget that selects pod, or nil if there is none. It returns an error if
// several budgets select pod.
func (x *eviction) budget(ctx context.Context, pod *corev1.Pod) (*policyv1.PodDisruptionBudget, error) {
	list, err := x.Client.PolicyV1().PodDisruptionBudgets(x.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var found *policyv1.PodDisruptionBudget
	for i := range list.Items {
		selector, err := metav1.LabelSelectorAsSelector(list.Items[i].Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if found != nil {
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: 500,
				Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
			}}
		}
		found = &list.Items[i]
	}
	return found, nil
}

// spend subtracts one allowed disruption from the status of the budget, and records the pod there,
// so that the disruption controller no longer counts the pod as healthy.
func (x *eviction) spend(ctx context.Context, pod *corev1.Pod, pdb *policyv1.PodDisruptionBudget) error {
	s := &pdb.Status
	gr := schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}
	switch {
	case s.ObservedGeneration < pdb.Generation:
		return stillProcessing(pdb.Name)
	case s.DisruptionsAllowed < 0:
		return because(apierrors.NewForbidden(gr, pdb.Name, errors.New("pdb disruptions allowed is negative")), pdb,
			"pdb disruptions allowed is negative")
	case len(s.DisruptedPods) > maxDisrupted:
		return because(apierrors.NewForbidden(gr, pdb.Name,
			errors.New("DisruptedPods map too big - too many evictions not confirmed by PDB controller")), pdb,
			"too many pending evictions not confirmed by PDB controller")
	case s.DisruptionsAllowed == 0:
		return refusal(pdb)
	}
	s.DisruptionsAllowed--
	if s.DisruptionsAllowed == 0 {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
			Reason: policyv1.InsufficientPodsReason, ObservedGeneration: s.ObservedGeneration,
			LastTransitionTime: metav1.NewTime(x.Clock.Now()),
		})
	}
	if x.dryRun {
		return nil
	}
	if s.DisruptedPods == nil {
		s.DisruptedPods = map[string]metav1.Time{}
	}
	s.DisruptedPods[pod.Name] = metav1.NewTime(x.Clock.Now())
	_, err := x.Client.PolicyV1().PodDisruptionBudgets(x.namespace).UpdateStatus(ctx, pdb, metav1.UpdateOptions{})
	return err
}

const violation = "Cannot evict pod as it would violate the pod's disruption budget."

func tooMany(seconds int, message string) error {
	err := apierrors.NewTooManyRequests(violation, seconds)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
		metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: message})
	return err
}

func stillProcessing(budget string) error {
	return tooMany(10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget))
}

// because adds to err that the budget does not allow the eviction, and why.
func because(err *apierrors.StatusError, pdb *policyv1.PodDisruptionBudget, reason string) error {
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    policyv1.DisruptionBudgetCause,
		Message: fmt.Sprintf("The disruption budget %s does not allow evicting pods currently: %s", pdb.Name, reason),
	})
	return err
}

func refusal(pdb *policyv1.PodDisruptionBudget) error {
	s := &pdb.Status
	c := meta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition)
	said := c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	switch {
	case said && c.Reason == policyv1.SyncFailedReason:
		return tooMany(0, fmt.Sprintf(
			"The disruption budget %s does not allow evicting pods currently because it failed sync: %s", pdb.Name, c.Message))
	case s.CurrentHealthy <= s.DesiredHealthy:
		return tooMany(0, fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
			pdb.Name, s.DesiredHealthy, s.CurrentHealthy))
	case said:
		return tooMany(0, fmt.Sprintf(
			"The disruption budget %s does not allow evicting pods currently (%s): %s", pdb.Name, c.Reason, c.Message))
	}
	return tooMany(0, fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", pdb.Name))
}

// atRevision returns preconditions with only the revision of p, or nil if p has none.
func atRevision(p *metav1.Preconditions) *metav1.Preconditions {
	if p == nil || p.ResourceVersion == nil {
		return nil
	}
	return &metav1.Preconditions{ResourceVersion: p.ResourceVersion}
}

// delete sets the condition DisruptionTarget of the pod and deletes the pod.
func (x *eviction) delete(ctx context.Context, options *metav1.DeleteOptions) error {
	reg := x.Registry()
	if !x.dryRun {
		rec, _, err := reg.Update(ctx, registry.Update{
			Namespace: x.namespace, Name: x.name, Subresource: "status", SkipAdmission: true, OwnFields: true,
			Preconditions: atRevision(options.Preconditions),
			Transform: func(_ context.Context, cur resource.Object) (resource.Object, error) {
				pod, ok := cur.(*corev1.Pod)
				if !ok {
					return nil, fmt.Errorf("unexpected object: %T", cur)
				}
				if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != pod.UID {
					// As in Kubernetes, the error has the kind instead of the resource.
					return nil, apierrors.NewConflict(schema.GroupResource{Resource: "Pod"}, pod.Name,
						fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). "+
							"The object might have been deleted and then recreated", *p.UID, pod.UID))
				}
				setCondition(&pod.Status, corev1.PodCondition{
					Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
					Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
				}, metav1.NewTime(x.Clock.Now()))
				return pod, nil
			},
		})
		if err != nil {
			return err
		}
		if options.Preconditions != nil && options.Preconditions.ResourceVersion != nil {
			options = atVersion(options, fmt.Sprint(rec.Revision))
		}
	}
	_, _, err := reg.DeleteAdmitted(ctx, x.namespace, x.name, *options)
	return err
}
