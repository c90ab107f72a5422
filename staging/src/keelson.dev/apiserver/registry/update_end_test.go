// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

// TestLastFinalizer checks that an update that removes the last finalizer of an object that is
// being deleted removes the object, and returns the revision that the object had.
func TestLastFinalizer(t *testing.T) {
	deleted := func(t *testing.T, row *resource.Row, change ...func(*registry.Config)) (*env, *corev1.ConfigMap) {
		e := newEnv(t, row, change...)
		c := configMap("c")
		c.Finalizers = []string{"a.b/c"}
		create(t, e, c)
		rec, gone, err := e.Delete(e.ctx, "ns", "c", metav1.DeleteOptions{})
		if c = must[*corev1.ConfigMap](t, rec, err); gone || c.DeletionTimestamp == nil ||
			*c.DeletionGracePeriodSeconds != 0 {
			t.Fatalf("gone %v: %+v", gone, c)
		}
		return e, c
	}
	var after []string
	hooked := configMaps(func(k *resource.Kind[*corev1.ConfigMap]) {
		k.AllowUnconditionalUpdate = true
		k.Hooks.AfterDelete = func(_ context.Context, c *corev1.ConfigMap) { after = append(after, c.Name+c.Data["last"]) }
	})
	t.Run("removed", func(t *testing.T) {
		e, old := deleted(t, hooked)
		rec, _, err := update(
			e, "c", registry.Update{},
			func(c *corev1.ConfigMap) { c.Finalizers, c.Data = nil, map[string]string{"last": "word"} },
		)
		if c := must[*corev1.ConfigMap](t, rec, err); c.ResourceVersion != old.ResourceVersion || c.Data["last"] != "word" {
			t.Errorf("answer: %v", c)
		}
		if _, ok := get[*corev1.ConfigMap](t, e, "c"); ok {
			t.Error("the object is still there")
		}
		sameStrings(t, "after", after, []string{"cword"})
	})
	t.Run("dry run", func(t *testing.T) {
		e, _ := deleted(t, hooked)
		_, _, err := update(
			e, "c", registry.Update{Options: metav1.UpdateOptions{DryRun: []string{"All"}}},
			func(c *corev1.ConfigMap) { c.Finalizers = nil },
		)
		if _, ok := get[*corev1.ConfigMap](t, e, "c"); !ok || err != nil {
			t.Errorf("still there: %v, %v", ok, err)
		}
	})
	t.Run("another finalizer stays", func(t *testing.T) {
		e, _ := deleted(t, hooked)
		_, _, err := update(e, "c", registry.Update{}, func(c *corev1.ConfigMap) { c.Labels = map[string]string{"a": "b"} })
		if _, ok := get[*corev1.ConfigMap](t, e, "c"); !ok || err != nil {
			t.Errorf("still there: %v, %v", ok, err)
		}
	})
	t.Run("new finalizer", func(t *testing.T) {
		e, _ := deleted(t, hooked)
		_, _, err := update(
			e, "c", registry.Update{}, func(c *corev1.ConfigMap) { c.Finalizers = append(c.Finalizers, "new.b/c") },
		)
		wantError(
			t, err, metav1.StatusReasonInvalid,
			"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "+
				`found new finalizers []string{"new.b/c"}`,
		)
	})
	t.Run("another write comes first", func(t *testing.T) {
		var e *env
		tries := 0
		e, _ = deleted(t, configMaps(
			func(k *resource.Kind[*corev1.ConfigMap]) { k.AllowUnconditionalUpdate = true },
		), withAdmission(plugin{
			validate: func(_ context.Context, a admission.Attributes) error {
				if a.GetOperation() != admission.Update || len(a.GetObject().(*corev1.ConfigMap).Finalizers) > 0 {
					return nil
				}
				if tries++; tries > 1 {
					return nil
				}
				_, _, err := update(
					e, "c", registry.Update{SkipAdmission: true},
					func(c *corev1.ConfigMap) { c.Data = map[string]string{"other": "write"} },
				)
				return err
			},
		}))
		rec, _, err := update(e, "c", registry.Update{}, func(c *corev1.ConfigMap) { c.Finalizers = nil })
		if c := must[*corev1.ConfigMap](t, rec, err); tries != 2 || c.Data["other"] != "write" {
			t.Errorf("after %d tries: %v", tries, c)
		}
	})
}

// TestUpdateHooks checks when the hooks of updates run, and that the function returned by
// BeforeUpdate is called with the outcome of each attempt.
func TestUpdateHooks(t *testing.T) {
	var calls []string
	row := deployments(func(k *resource.Kind[*appsv1.Deployment]) {
		k.Hooks.BeforeUpdate = func(_ context.Context, d, old *appsv1.Deployment, dryRun bool) (func(bool), error) {
			if d.Labels["refuse"] != "" {
				return nil, apierrors.NewBadRequest("refused")
			}
			calls = append(calls, fmt.Sprint("before ", *old.Spec.Replicas, "→", *d.Spec.Replicas, " dry=", dryRun))
			return func(ok bool) { calls = append(calls, fmt.Sprint("finish ", ok)) }, nil
		}
		k.Hooks.AfterUpdate = func(_ context.Context, d, old *appsv1.Deployment) {
			calls = append(calls, fmt.Sprint("after ", *old.Spec.Replicas, "→", *d.Spec.Replicas))
		}
	})
	e := newEnv(t, row)
	create(t, e, deployment("d"))
	scale := func(u registry.Update, n int32) error {
		_, _, err := update(e, "d", u, func(d *appsv1.Deployment) { d.Spec.Replicas = &n })
		return err
	}
	wantError(t, scale(registry.Update{}, 2), "", "")
	wantError(t, scale(registry.Update{Options: metav1.UpdateOptions{DryRun: []string{"All"}}}, 3), "", "")
	wantError(t, scale(registry.Update{}, -1), metav1.StatusReasonInvalid, "")
	wantError(t, scale(registry.Update{Subresource: "status"}, 4), "", "")
	_, _, err := update(
		e, "d", registry.Update{}, func(d *appsv1.Deployment) { d.Labels = map[string]string{"refuse": "it"} },
	)
	wantError(t, err, metav1.StatusReasonBadRequest, "refused")
	sameStrings(t, "calls", calls, []string{
		"before 1→2 dry=false", "finish true", "after 1→2",
		"before 2→3 dry=true", "finish true",
		"before 2→-1 dry=false", "finish false",
		"after 2→2",
	})
}
