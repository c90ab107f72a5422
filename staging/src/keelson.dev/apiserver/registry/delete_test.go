// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
)

func policy(p metav1.DeletionPropagation) metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: &p}
}

func grace(seconds int64) metav1.DeleteOptions {
	return metav1.DeleteOptions{GracePeriodSeconds: &seconds}
}

// TestDelete checks, for a kind without graceful deletion, whether a delete removes an object, and
// which finalizers an object that stays has afterwards.
func TestDelete(t *testing.T) {
	const orphan, foreground = metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents
	orphans := configMaps(
		func(k *resource.Kind[*corev1.ConfigMap]) { k.DefaultGarbageCollection = metav1.DeletePropagationOrphan },
	)
	owns := configMaps(func(k *resource.Kind[*corev1.ConfigMap]) { k.DefaultGarbageCollection = "Unsupported" })
	dry := metav1.DeleteOptions{DryRun: []string{"All"}}
	dryForeground := policy(metav1.DeletePropagationForeground)
	dryForeground.DryRun = dry.DryRun
	uid := func(u types.UID) metav1.DeleteOptions {
		return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &u}}
	}
	for name, tc := range map[string]struct {
		row        *resource.Row
		finalizers []string
		options    metav1.DeleteOptions
		noGC       bool
		reason     metav1.StatusReason
		text       string
		stays      []string // finalizers of an object that is not removed
	}{
		"plain":                       {},
		"finalizer":                   {finalizers: []string{"a.b/c"}, stays: []string{"a.b/c"}},
		"grace period is not for it":  {options: grace(30)},
		"background":                  {options: policy(metav1.DeletePropagationBackground)},
		"foreground":                  {options: policy(metav1.DeletePropagationForeground), stays: []string{foreground}},
		"orphan":                      {options: policy(metav1.DeletePropagationOrphan), stays: []string{orphan}},
		"orphanDependents":            {options: metav1.DeleteOptions{OrphanDependents: new(true)}, stays: []string{orphan}},
		"orphanDependents, false":     {row: orphans, options: metav1.DeleteOptions{OrphanDependents: new(false)}},
		"orphan by default":           {row: orphans, stays: []string{orphan}},
		"default overruled":           {row: orphans, options: policy(metav1.DeletePropagationBackground)},
		"collector's finalizer":       {finalizers: []string{foreground}, stays: []string{foreground}},
		"collector's other finalizer": {finalizers: []string{orphan}, stays: []string{orphan}},
		"collector's, replaced": {
			finalizers: []string{orphan, "a.b/c"}, options: policy(metav1.DeletePropagationForeground),
			stays: []string{"a.b/c", foreground},
		},
		"collector's, taken back": {finalizers: []string{orphan}, options: policy(metav1.DeletePropagationBackground)},
		"unsupported": {
			row: owns, finalizers: []string{orphan}, options: policy(metav1.DeletePropagationForeground),
		},
		"no collector": {noGC: true, options: policy(metav1.DeletePropagationForeground)},
		"no collector, finalizer": {
			noGC: true, finalizers: []string{orphan}, options: policy(metav1.DeletePropagationBackground),
			stays: []string{orphan},
		},
		"unknown policy": {options: policy("Sideways"), reason: metav1.StatusReasonInvalid, stays: []string{},
			text: `DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Sideways"`},
		"uid": {options: uid("uid-1")},
		"uid of another": {options: uid("other"), reason: metav1.StatusReasonConflict, stays: []string{},
			text: "the UID in the precondition (other) does not match the UID in record (uid-1). " +
				"The object might have been deleted and then recreated"},
		"resourceVersion of another": {options: metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{ResourceVersion: new("1")},
		}, reason: metav1.StatusReasonConflict, stays: []string{},
			text: "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ("},
		"dry run":             {options: dry, stays: []string{}},
		"dry run, finalizer":  {options: dry, finalizers: []string{"a.b/c"}, stays: []string{"a.b/c"}},
		"dry run, collected":  {options: dry, finalizers: []string{orphan}, stays: []string{orphan}},
		"dry run, foreground": {options: dryForeground, stays: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.row == nil {
				tc.row = configMaps()
			}
			e := newEnv(t, tc.row, func(c *registry.Config) { c.NoGarbageCollection = tc.noGC })
			c := configMap("c")
			c.Finalizers, c.Generation = tc.finalizers, 4
			before := create(t, e, c)
			_, gone, err := e.Delete(e.ctx, "ns", "c", tc.options)
			wantError(t, err, tc.reason, tc.text)
			c, ok := get[*corev1.ConfigMap](t, e, "c")
			if ok != (tc.stays != nil) || ok && !slices.Equal(c.Finalizers, tc.stays) {
				t.Fatalf("stays %v: %+v", ok, c)
			}
			if len(tc.options.DryRun) > 0 || err != nil {
				if c.ResourceVersion != before.ResourceVersion {
					t.Errorf("has changed: %+v", c)
				}
				return
			}
			if gone == ok {
				t.Errorf("gone %v, but there %v", gone, ok)
			}
			if ok &&
				(!c.DeletionTimestamp.Time.Equal(start) || *c.DeletionGracePeriodSeconds != 0 ||
					c.Generation != before.Generation+min(1, before.Generation)) {
				t.Errorf("mark: %+v", c.ObjectMeta)
			}
		})
	}
	e := newEnv(t, configMaps())
	_, _, err := e.Delete(e.ctx, "ns", "absent", metav1.DeleteOptions{})
	wantError(t, err, metav1.StatusReasonNotFound, `configmaps "absent" not found`)
}

// TestGracefulDeletion sends several deletes for a pod, and checks its state after each.
func TestGracefulDeletion(t *testing.T) {
	type step struct {
		after   time.Duration // time since the step before
		options metav1.DeleteOptions
		gone    bool
		grace   int64         // grace period in the pod's metadata, unless the pod is gone
		end     time.Duration // deletion timestamp of the pod, as time since start
	}
	for name, tc := range map[string]struct {
		finalizers []string
		steps      []step
		stays      bool
	}{
		"default":   {steps: []step{{grace: 30, end: 30 * time.Second}}, stays: true},
		"confirmed": {steps: []step{{grace: 30, end: 30 * time.Second}, {options: grace(0), gone: true}}},
		"asked twice": {
			steps: []step{{grace: 30, end: 30 * time.Second}, {after: time.Second, grace: 30, end: 30 * time.Second}},
			stays: true,
		},
		"not longer": {
			steps: []step{
				{options: grace(10), grace: 10, end: 10 * time.Second}, {options: grace(20), grace: 10, end: 10 * time.Second},
			},
			stays: true,
		},
		"shorter": {
			steps: []step{
				{options: grace(60), grace: 60, end: time.Minute},
				{after: time.Second, options: grace(5), grace: 5, end: 5 * time.Second},
			},
			stays: true,
		},
		"shorter, too late": {
			steps: []step{
				{options: grace(60), grace: 60, end: time.Minute},
				{after: 50 * time.Second, options: grace(5), grace: 1, end: 50 * time.Second},
			},
			stays: true,
		},
		"at once":  {steps: []step{{options: grace(0), gone: true}}},
		"negative": {steps: []step{{options: grace(-5), grace: 1, end: time.Second}}, stays: true},
		"confirmed too early": {
			finalizers: []string{"a.b/c"},
			steps:      []step{{grace: 30, end: 30 * time.Second}, {options: grace(0), grace: 0, end: 0}}, stays: true,
		},
		"at once, finalizer": {
			finalizers: []string{"a.b/c"},
			steps:      []step{{options: grace(0), grace: 0, end: 0}, {options: grace(0), grace: 0, end: 0}}, stays: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, pods())
			p := pod("p")
			p.Finalizers = tc.finalizers
			create(t, e, p)
			for i, s := range tc.steps {
				e.clock.Step(s.after)
				rec, gone, err := e.Delete(e.ctx, "ns", "p", s.options)
				if err != nil || gone != s.gone {
					t.Fatalf("step %d: gone %v, %v", i, gone, err)
				}
				if gone {
					continue
				}
				if p = must[*corev1.Pod](t, rec, err); *p.DeletionGracePeriodSeconds != s.grace ||
					!p.DeletionTimestamp.Time.Equal(start.Add(s.end)) {
					t.Errorf("step %d: grace %d, end %v", i, *p.DeletionGracePeriodSeconds, p.DeletionTimestamp)
				}
			}
			if _, ok := get[*corev1.Pod](t, e, "p"); ok != tc.stays {
				t.Errorf("there: %v", ok)
			}
		})
	}
}

// TestGracefulDryRun checks that dry runs of graceful deletes change nothing.
func TestGracefulDryRun(t *testing.T) {
	e := newEnv(t, pods())
	old := create(t, e, pod("p"))
	dry := metav1.DeleteOptions{DryRun: []string{"All"}}
	now := grace(0)
	now.DryRun = dry.DryRun
	for name, options := range map[string]metav1.DeleteOptions{"default": dry, "at once": now} {
		rec, gone, err := e.Delete(e.ctx, "ns", "p", options)
		if p := must[*corev1.Pod](t, rec, err); gone != (name == "at once") || p.DeletionTimestamp == nil {
			t.Errorf("%s: gone %v: %+v", name, gone, p.ObjectMeta)
		}
	}
	if p, _ := get[*corev1.Pod](t, e, "p"); p == nil || p.ResourceVersion != old.ResourceVersion {
		t.Errorf("stored: %v", p)
	}
}

// TestGracefulRules checks kinds whose GracefulDelete returns false, or sets no grace period.
func TestGracefulRules(t *testing.T) {
	e := newEnv(t, pods(func(k *resource.Kind[*corev1.Pod]) {
		k.GracefulDelete = func(
			_ context.Context, p *corev1.Pod, _ *metav1.DeleteOptions,
		) bool {
			return p.Spec.NodeName != ""
		}
	}))
	create(t, e, pod("p"))
	_, gone, err := e.Delete(e.ctx, "ns", "p", metav1.DeleteOptions{})
	if !gone || err != nil {
		t.Errorf("gone %v, %v", gone, err)
	}
	bound := pod("p")
	bound.Spec.NodeName = "n"
	create(t, e, bound)
	_, _, err = e.Delete(e.ctx, "ns", "p", metav1.DeleteOptions{})
	wantError(t, err, metav1.StatusReasonInternalError, "options.GracePeriodSeconds should not be nil")
}

// TestDeleteHooks checks that the hooks can reject a delete, change its options, and keep the
// object.
func TestDeleteHooks(t *testing.T) {
	var after []string
	e := newEnv(t, configMaps(func(k *resource.Kind[*corev1.ConfigMap]) {
		k.Hooks.BeforeDelete = func(_ context.Context, c *corev1.ConfigMap, _ *metav1.DeleteOptions) error {
			switch c.Name {
			case "pending":
				return resource.ErrBeingDeleted
			case "refused":
				return apierrors.NewBadRequest("refused")
			}
			return nil
		}
		k.Hooks.AfterDelete = func(_ context.Context, c *corev1.ConfigMap) { after = append(after, c.Name) }
	}))
	for name, tc := range map[string]struct {
		gone   bool
		reason metav1.StatusReason
	}{"pending": {}, "refused": {reason: metav1.StatusReasonBadRequest}, "free": {gone: true}} {
		create(t, e, configMap(name))
		_, gone, err := e.Delete(e.ctx, "ns", name, metav1.DeleteOptions{})
		wantError(t, err, tc.reason, "")
		if _, ok := get[*corev1.ConfigMap](t, e, name); gone != tc.gone || ok == gone {
			t.Errorf("%s: gone %v, there %v", name, gone, ok)
		}
	}
	sameStrings(t, "after", after, []string{"free"})
}

// TestDeleteAdmission checks that admission plugins receive the deleted object as the old object,
// and can reject the deletion.
func TestDeleteAdmission(t *testing.T) {
	var calls []string
	e := newEnv(t, configMaps(), withAdmission(log(&calls)))
	create(t, e, configMap("c"))
	calls = nil
	if _, gone, err := e.Delete(e.ctx, "ns", "c", metav1.DeleteOptions{}); !gone || err != nil {
		t.Fatal(gone, err)
	}
	sameStrings(t, "calls", calls, []string{"admit DELETE ns/c new=- old=c", "validate DELETE ns/c new=- old=c"})

	refuse := plugin{validate: func(_ context.Context, a admission.Attributes) error {
		if a.GetOperation() == admission.Delete {
			return admission.NewForbidden(a, errors.New("stay"))
		}
		return nil
	}}
	for name, row := range map[string]*resource.Row{"plain": configMaps(), "graceful": pods()} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, row, withAdmission(refuse))
			obj := row.New()
			obj.SetName("o")
			create(t, e, obj)
			_, _, err := e.Delete(e.ctx, "ns", "o", metav1.DeleteOptions{})
			wantError(t, err, metav1.StatusReasonForbidden, "stay")
			if _, ok := get[resource.Object](t, e, "o"); !ok {
				t.Error("the object is gone")
			}
			if _, gone, err := e.DeleteAdmitted(e.ctx, "ns", "o", grace(0)); !gone || err != nil {
				t.Errorf("admitted before: gone %v, %v", gone, err)
			}
		})
	}
	_, _, err := e.DeleteAdmitted(e.ctx, "ns", "o", policy("Sideways"))
	wantError(t, err, metav1.StatusReasonInvalid, "")
}

// TestDeleteCustom checks a delete of an object without a Go type.
func TestDeleteCustom(t *testing.T) {
	e := newEnv(t, widgets())
	create(t, e, with(widget("w", "red"), []any{"a.b/c"}, "metadata", "finalizers"))
	if _, gone, err := e.Delete(e.ctx, "ns", "w", metav1.DeleteOptions{}); gone || err != nil {
		t.Fatal(gone, err)
	}
	if w, _ := get[resource.Object](t, e, "w"); w.GetDeletionTimestamp() == nil {
		t.Errorf("not marked: %v", w)
	}
}

// TestUpdateAndDelete checks that a pod's last status and its deletion are stored in one write if
// the deletion is graceful, and in two writes otherwise.
func TestUpdateAndDelete(t *testing.T) {
	status := func(name string, err error) registry.Update {
		return registry.Update{Namespace: "ns", Name: name, Subresource: "status", Transform: func(
			_ context.Context, cur resource.Object,
		) (resource.Object, error) {
			if err != nil {
				return nil, err
			}
			cur.(*corev1.Pod).Status.Phase = corev1.PodFailed
			return cur, nil
		}}
	}
	hooked := pods(func(k *resource.Kind[*corev1.Pod]) {
		k.Hooks.AfterUpdate = func(context.Context, *corev1.Pod, *corev1.Pod) {}
	})
	for name, tc := range map[string]struct {
		row     *resource.Row
		options metav1.DeleteOptions
		marked  bool // whether the pod is already being deleted
		refuse  error
		reason  metav1.StatusReason
		gone    bool
		states  int // number of events that a watch receives, including the deletion
	}{
		"together":             {states: 1},
		"together, at once":    {options: grace(0), gone: true, states: 2},
		"marked already":       {marked: true, states: 1},
		"marked already, ends": {marked: true, options: grace(0), gone: true, states: 2},
		"hook":                 {row: hooked, states: 2},
		"refused": {
			refuse: apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("no")),
			reason: metav1.StatusReasonConflict,
		},
		"refused, with hook": {row: hooked, refuse: apierrors.NewGone("no"), reason: metav1.StatusReasonGone},
		"invalid options":    {options: policy("Sideways"), reason: metav1.StatusReasonInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.row == nil {
				tc.row = pods()
			}
			e := newEnv(t, tc.row)
			p := create(t, e, pod("p"))
			if tc.marked {
				rec, _, err := e.Delete(e.ctx, "ns", "p", metav1.DeleteOptions{})
				p = must[*corev1.Pod](t, rec, err)
			}
			watch, err := e.Watch(e.ctx, "ns", metav1.ListOptions{ResourceVersion: p.ResourceVersion}, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer watch.Stop()
			wantError(t, e.UpdateAndDelete(e.ctx, status("p", tc.refuse), tc.options), tc.reason, "")
			last, ok := get[*corev1.Pod](t, e, "p")
			if ok == tc.gone || ok && tc.reason == "" &&
				(last.Status.Phase != corev1.PodFailed || last.DeletionTimestamp == nil) {
				t.Errorf("there %v: %+v", ok, last)
			}
			states := 0
			for states < tc.states {
				events, err := watch.Next(e.ctx)
				if err != nil {
					t.Fatal(err)
				}
				states += len(events)
			}
			if states != tc.states {
				t.Errorf("a watch saw %d states", states)
			}
		})
	}
}
