// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// reconciler maintains a ConfigMap with the text of each Greeting.
type reconciler struct {
	client.Client
	scheme *runtime.Scheme
}

// Reconcile makes the ConfigMap of one Greeting match the Greeting's spec.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	g := &Greeting{}
	if err := r.Get(ctx, req.NamespacedName, g); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: g.Name, Namespace: g.Namespace}}
	if _, err := controllerutil.CreateOrUpdate(ctx, r, m, func() error {
		m.Data = map[string]string{"text": g.Spec.Text}
		return controllerutil.SetControllerReference(g, m, r.scheme)
	}); err != nil {
		return ctrl.Result{}, fmt.Errorf("config map: %w", err)
	}
	if g.Status.Published == g.Spec.Text {
		return ctrl.Result{}, nil
	}
	before := g.DeepCopyObject().(*Greeting)
	g.Status.Published = g.Spec.Text
	return ctrl.Result{}, r.Status().Patch(ctx, g, client.MergeFrom(before))
}

// hooks has the operator's admission webhooks.
type hooks struct{}

// errRude is the error with which the webhook rejects an impolite Greeting.
var errRude = errors.New("a greeting must be polite")

// Default sets the text of a Greeting that has none.
func (hooks) Default(_ context.Context, g *Greeting) error {
	if g.Spec.Text == "" {
		g.Spec.Text = "hello"
	}
	return nil
}

// ValidateCreate validates a new Greeting.
func (hooks) ValidateCreate(_ context.Context, g *Greeting) (admission.Warnings, error) {
	if g.Spec.Text == "go away" {
		return nil, errRude
	}
	return nil, nil
}

// ValidateUpdate validates the new state of a Greeting.
func (h hooks) ValidateUpdate(ctx context.Context, _, g *Greeting) (admission.Warnings, error) {
	return h.ValidateCreate(ctx, g)
}

// ValidateDelete accepts all deletions.
func (hooks) ValidateDelete(context.Context, *Greeting) (admission.Warnings, error) { return nil, nil }
