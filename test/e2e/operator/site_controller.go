// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"keelson.dev/keelson/test/e2e/operator/site"
)

// finalizer delays the deletion of a Site until the operator has cleaned up.
const finalizer = site.Group + "/goodbye"

// reconciler maintains a Deployment for each Site.
type reconciler struct {
	client.Client
	scheme *runtime.Scheme
}

// Reconcile makes the Deployment of one Site match the Site's spec.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &site.Site{}
	if err := r.Get(ctx, req.NamespacedName, s); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !s.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(s, finalizer) {
			return ctrl.Result{}, r.Update(ctx, s)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(s, finalizer) {
		return ctrl.Result{}, r.Update(ctx, s)
	}
	labels := map[string]string{"site": s.Name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace}}
	if _, err := controllerutil.CreateOrUpdate(ctx, r, d, func() error {
		d.Spec.Replicas, d.Spec.Selector = s.Spec.Replicas, &metav1.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Labels = labels
		if len(d.Spec.Template.Spec.Containers) == 0 {
			d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "nginx:1.27"}}
		}
		d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "MESSAGE", Value: s.Spec.Message}}
		return controllerutil.SetControllerReference(s, d, r.scheme)
	}); err != nil {
		return ctrl.Result{}, fmt.Errorf("deployment: %w", err)
	}
	before := s.DeepCopyObject().(*site.Site)
	s.Status.Replicas, s.Status.Ready, s.Status.Selector = d.Status.Replicas, d.Status.ReadyReplicas, "site="+s.Name
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Waiting",
		ObservedGeneration: s.Generation}
	if s.Spec.Replicas != nil && d.Status.ReadyReplicas == *s.Spec.Replicas &&
		d.Status.ObservedGeneration == d.Generation {
		ready.Status, ready.Reason = metav1.ConditionTrue, "AllReady"
	}
	meta.SetStatusCondition(&s.Status.Conditions, ready)
	return ctrl.Result{}, r.Status().Patch(ctx, s, client.MergeFrom(before))
}

// defaults is the mutating webhook, which sets default values in Sites.
type defaults struct{}

// Default sets the default values of a Site that is being created or updated.
func (defaults) Default(_ context.Context, s *site.Site) error {
	if s.Spec.Message == "" {
		s.Spec.Message = "hello"
	}
	return nil
}

// rules is the validating webhook for Sites.
type rules struct{}

const most = 5

func check(s *site.Site) (admission.Warnings, error) {
	if s.Spec.Replicas != nil && *s.Spec.Replicas > most {
		return nil, fmt.Errorf("a site has at most %d replicas", most)
	}
	if s.Spec.Replicas != nil && *s.Spec.Replicas == 0 {
		return admission.Warnings{"nobody will answer for this site"}, nil
	}
	return nil, nil
}

// ValidateCreate validates a new Site.
func (rules) ValidateCreate(_ context.Context, s *site.Site) (admission.Warnings, error) {
	return check(s)
}

// ValidateUpdate validates the new state of a Site.
func (rules) ValidateUpdate(_ context.Context, _, s *site.Site) (admission.Warnings, error) {
	return check(s)
}

// ValidateDelete rejects the deletion of Sites with the annotation keep=true.
func (rules) ValidateDelete(_ context.Context, s *site.Site) (admission.Warnings, error) {
	if s.Annotations["keep"] == "true" {
		return nil, errors.New("this site is to be kept")
	}
	return nil, nil
}
