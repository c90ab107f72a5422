// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pods answers what can be done to pods beside writing them: binding to
// a node and eviction.
package pods

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/registry"
	"keelson.dev/apiserver/resource"
	"keelson.dev/apiserver/store"
)

// Binder assigns pods to nodes.
type Binder struct {
	// Registry is that of pods, once the server has it.
	Registry func() *registry.Registry
	Clock    clock.Clock
}

// Creator answers pods/binding.
func (b *Binder) Creator() *resource.Creator {
	return &resource.Creator{New: func() runtime.Object { return &corev1.Binding{} }, Create: b.create, Preconditions: true}
}

// Collection answers bindings, which are about any pod of their name.
func (b *Binder) Collection() *resource.Creator {
	return &resource.Creator{New: func() runtime.Object { return &corev1.Binding{} }, Create: b.create}
}

func (b *Binder) create(ctx context.Context, req *resource.Request, obj runtime.Object, validate resource.ValidateFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding object: %#v", obj))
	}
	if req.Name != "" && req.Name != binding.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validateBinding(binding); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	if err := validate(ctx, binding); err != nil {
		return nil, err
	}
	if err := req.CheckKey(binding.Name); err != nil {
		return nil, err
	}
	if err := b.bind(ctx, req.Namespace, binding, len(options.DryRun) > 0); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// bind assigns the pod, and says what is in the way as pods/binding does.
func (b *Binder) bind(ctx context.Context, namespace string, binding *corev1.Binding, dryRun bool) error {
	return worded(binding, b.assign(ctx, namespace, binding, dryRun))
}

// worded is an error as pods/binding answers it.
func worded(binding *corev1.Binding, err error) error {
	var status *apierrors.StatusError
	if err != nil && !errors.As(err, &status) {
		err = apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, binding.Name, err)
	}
	return err
}

// check tells what speaks against a binding. What is in the cache will do for a
// yes; a no has to be of the present.
func (b *Binder) check(ctx context.Context, namespace string, binding *corev1.Binding) error {
	var err error
	for _, version := range []string{"0", ""} {
		var rec *store.Record
		if rec, err = b.Registry().Store().Get(ctx, namespace+"/"+binding.Name, version); err != nil {
			continue
		}
		var obj store.Object
		if obj, err = rec.Shared(); err != nil {
			return err
		}
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("unexpected object: %T", obj)
		}
		if err = b.bindable(pod, binding, false); err == nil {
			return nil
		}
	}
	return worded(binding, err)
}

func validateBinding(b *corev1.Binding) field.ErrorList {
	var errs field.ErrorList
	if kind := b.Target.Kind; kind != "" && kind != "Node" {
		errs = append(errs, field.NotSupported(field.NewPath("target", "kind"), kind, []string{"Node", "<empty>"}))
	}
	name := field.NewPath("target", "name")
	switch {
	case b.Target.Name == "":
		errs = append(errs, field.Required(name, ""))
	case len(errs) == 0: // the target is a node; a pod on one of another name could never be updated
		for _, message := range naming.NameIsDNSSubdomain(b.Target.Name, false) {
			errs = append(errs, field.Invalid(name, b.Target.Name, message))
		}
	}
	return errs
}

// assign writes the node into the pod, if it has none and nothing speaks
// against it. It goes past strategies: what it changes, updates may not.
func (b *Binder) assign(ctx context.Context, namespace string, binding *corev1.Binding, dryRun bool) error {
	reg := b.Registry()
	change := func(_ context.Context, cur *store.Record) (store.Object, error) {
		return b.assigned(cur, binding, dryRun)
	}
	key := namespace + "/" + binding.Name
	if dryRun {
		rec, err := reg.Store().Get(ctx, key, "")
		if err == nil {
			_, err = change(ctx, rec)
		}
		return err
	}
	_, err := reg.Store().Update(ctx, key, change)
	return err
}

// bindAll assigns all pods at once, or says what is in the way of which.
func (b *Binder) bindAll(ctx context.Context, bindings []*corev1.Binding) (refused []error, err error) {
	keys := make([]string, len(bindings))
	for i, binding := range bindings {
		keys[i] = binding.Namespace + "/" + binding.Name
	}
	refused, err = b.Registry().Store().UpdateAll(ctx, keys, func(_ context.Context, i int, cur *store.Record) (store.Object, error) {
		return b.assigned(cur, bindings[i], false)
	})
	for i := range refused {
		refused[i] = worded(bindings[i], refused[i])
	}
	return refused, err
}

// assigned is a pod with the node that a binding gives it.
func (b *Binder) assigned(cur *store.Record, binding *corev1.Binding, dryRun bool) (store.Object, error) {
	obj, err := cur.Object()
	if err != nil {
		return nil, err
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("unexpected object: %T", obj)
	}
	if err := b.bindable(pod, binding, dryRun); err != nil {
		return nil, err
	}
	pod.Spec.NodeName = binding.Target.Name
	pod.Status.NominatedNodeName = ""
	if len(binding.Annotations) > 0 && pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, binding.Annotations)
	if len(binding.Labels) > 0 && pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels, binding.Labels)
	setCondition(&pod.Status, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, metav1.NewTime(b.Clock.Now()))
	return pod, nil
}

// bindable tells what speaks against a binding of pod.
func (b *Binder) bindable(pod *corev1.Pod, binding *corev1.Binding, dryRun bool) error {
	if err := b.Registry().CheckPreconditions(pod, meant(binding), dryRun); err != nil {
		return err
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return fmt.Errorf("pod %v is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return fmt.Errorf("pod %v has non-empty .spec.schedulingGates", pod.Name)
	}
	return nil
}

// meant are the preconditions of a binding: which pod it is about.
func meant(binding *corev1.Binding) *metav1.Preconditions {
	var p metav1.Preconditions
	if binding.UID != "" {
		p.UID = &binding.UID
	}
	if binding.ResourceVersion != "" {
		p.ResourceVersion = &binding.ResourceVersion
	}
	return &p
}

// setCondition replaces or adds a condition; its transition is now if its
// status changes.
func setCondition(status *corev1.PodStatus, c corev1.PodCondition, now metav1.Time) {
	c.LastTransitionTime = now
	for i := range status.Conditions {
		old := &status.Conditions[i]
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		*old = c
		return
	}
	status.Conditions = append(status.Conditions, c)
}
