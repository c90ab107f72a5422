// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pods implements bindings and evictions of pods, and the batches by which schedulers send
// many bindings or results of scheduling in one request.
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
	"keelson.dev/keelson/pkg/api/podspec"
)

// Binder binds pods to nodes.
type Binder struct {
	// Registry returns the registry of pods. It can be called only after the server has started.
	Registry func() *registry.Registry
	Clock    clock.Clock
}

// Creator returns the handler of the subresource binding of pods.
func (b *Binder) Creator() *resource.Creator {
	return &resource.Creator{New: func() runtime.Object { return &corev1.Binding{} }, Create: b.create,
		Preconditions: true}
}

// Collection returns the handler of the resource bindings. It binds the pod that has the name of
// the binding.
func (b *Binder) Collection() *resource.Creator {
	return &resource.Creator{New: func() runtime.Object { return &corev1.Binding{} }, Create: b.create}
}

func (b *Binder) create(ctx context.Context, req *resource.Request, obj runtime.Object,
	validate resource.ValidateFunc, options *metav1.CreateOptions) (runtime.Object, error) {
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

// bind binds a pod. Its errors have the messages of the subresource binding.
func (b *Binder) bind(ctx context.Context, namespace string, binding *corev1.Binding, dryRun bool) error {
	return bindingError(binding, b.assign(ctx, namespace, binding, dryRun))
}

// bindingError converts an error to the one that the subresource binding returns.
func bindingError(binding *corev1.Binding, err error) error {
	var status *apierrors.StatusError
	if err != nil && !errors.As(err, &status) {
		err = apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, binding.Name, err)
	}
	return err
}

// check returns an error if the binding is not possible now. If the pod in the cache can be bound,
// it does not read the current pod. Before it returns an error, it reads the current pod.
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
	return bindingError(binding, err)
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
	case len(errs) == 0: // with an invalid node name, every later update of the pod would be rejected
		for _, message := range naming.NameIsDNSSubdomain(b.Target.Name, false) {
			errs = append(errs, field.Invalid(name, b.Target.Name, message))
		}
	}
	return errs
}

// assign sets the node of a pod that has none. It writes to the store directly, because validation
// of updates does not allow this change.
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

// bindAll binds all pods in one transaction. If any pod cannot be bound, it binds none, and the
// result refused has the errors by index.
func (b *Binder) bindAll(ctx context.Context, bindings []*corev1.Binding) (refused []error, err error) {
	keys := make([]string, len(bindings))
	for i, binding := range bindings {
		keys[i] = binding.Namespace + "/" + binding.Name
	}
	refused, err = b.Registry().Store().UpdateAll(ctx, keys,
		func(_ context.Context, i int, cur *store.Record) (store.Object, error) {
			return b.assigned(cur, bindings[i], false)
		})
	for i := range refused {
		refused[i] = bindingError(bindings[i], refused[i])
	}
	return refused, err
}

// assigned returns the pod in cur, changed as binding requires.
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
	podspec.DropInitAnnotations(&pod.ObjectMeta)
	if len(binding.Labels) > 0 && pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels, binding.Labels)
	setCondition(&pod.Status, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		metav1.NewTime(b.Clock.Now()))
	return pod, nil
}

// bindable returns an error if pod cannot be bound: it does not match the preconditions of the
// binding, is being deleted, has a node, or has scheduling gates.
func (b *Binder) bindable(pod *corev1.Pod, binding *corev1.Binding, dryRun bool) error {
	if err := b.Registry().CheckPreconditions(pod, preconditionsOf(binding), dryRun); err != nil {
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

// preconditionsOf returns the UID and revision of the pod that a binding requires. A field is nil
// if the binding does not require it.
func preconditionsOf(binding *corev1.Binding) *metav1.Preconditions {
	var p metav1.Preconditions
	if binding.UID != "" {
		p.UID = &binding.UID
	}
	if binding.ResourceVersion != "" {
		p.ResourceVersion = &binding.ResourceVersion
	}
	return &p
}

// setCondition adds a condition to status, or replaces the condition of the same type. It sets the
// transition time to now if the status of the condition changes.
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
