// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
)

// priorities is the plugin Priority. It sets the priority of pods and pod groups from their
// PriorityClass, and allows at most one default PriorityClass.
type priorities struct {
	*admission.Handler
	client kubernetes.Interface
	lister schedulinglisters.PriorityClassLister
}

func newPriority(deps Deps) (admission.Interface, error) {
	informer := deps.Informers.Scheduling().V1().PriorityClasses()
	p := &priorities{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete),
		client: deps.Client, lister: informer.Lister()}
	p.SetReadyFunc(informer.Informer().HasSynced)
	return p, nil
}

// Admit sets spec.priority and spec.preemptionPolicy of a pod, and spec.priority of a pod group, from
// its priority class.
func (p *priorities) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if group, ok := a.GetObject().(*schedulingv1beta1.PodGroup); ok && a.GetSubresource() == "" &&
		a.GetOperation() == admission.Create {
		return p.admitGroup(ctx, a, group)
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	if r := a.GetResource(); !ok || r.Resource != "pods" || r.Group != "" || a.GetSubresource() != "" {
		return nil
	}
	if a.GetOperation() == admission.Update {
		old, ok := a.GetOldObject().(*corev1.Pod)
		if !ok {
			return nil
		}
		if pod.Spec.Priority == nil {
			pod.Spec.Priority = old.Spec.Priority
		}
		if pod.Spec.PreemptionPolicy == nil {
			pod.Spec.PreemptionPolicy = old.Spec.PreemptionPolicy
		}
		return nil
	}
	class, err := p.class(ctx, a, pod.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	priority, policy := int32(0), corev1.PreemptLowerPriority
	if class != nil {
		pod.Spec.PriorityClassName, priority = class.Name, class.Value
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	}
	if v := pod.Spec.Priority; v != nil && *v != priority {
		return admission.NewForbidden(a, fmt.Errorf("the integer value of priority (%d) must not be "+
			"provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *v, priority))
	}
	if v := pod.Spec.PreemptionPolicy; v != nil && *v != policy {
		return admission.NewForbidden(a, fmt.Errorf("the string value of PreemptionPolicy (%s) must not be "+
			"provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *v, policy))
	}
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = &priority, &policy
	return nil
}

// admitGroup sets spec.priority of a pod group from its priority class.
func (p *priorities) admitGroup(ctx context.Context, a admission.Attributes, g *schedulingv1beta1.PodGroup) error {
	class, err := p.class(ctx, a, g.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	priority := int32(0)
	if class != nil {
		g.Spec.PriorityClassName, priority = class.Name, class.Value
	}
	if v := g.Spec.Priority; v != nil && *v != priority {
		return admission.NewForbidden(a, fmt.Errorf("priority set in the pod group (%d) must match the priority "+
			"computed (%d) based on the priority class set in the spec", *v, priority))
	}
	g.Spec.Priority = &priority
	return nil
}

// class returns the priority class with the given name. If name is empty, it returns the default
// class, or nil if there is none.
func (p *priorities) class(ctx context.Context, a admission.Attributes,
	name string) (*schedulingv1.PriorityClass, error) {
	if name == "" {
		return p.defaultClass()
	}
	class, err := p.lister.Get(name)
	if apierrors.IsNotFound(err) && len(path.IsValidPathSegmentName(name)) == 0 {
		class, err = p.client.SchedulingV1().PriorityClasses().Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, admission.NewForbidden(a, fmt.Errorf("no PriorityClass with name %v was found", name))
	}
	if err != nil {
		return nil, fmt.Errorf("priority class %s: %w", name, err)
	}
	return class, nil
}

func (p *priorities) defaultClass() (*schedulingv1.PriorityClass, error) {
	all, err := p.lister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("default priority class: %w", err)
	}
	var found *schedulingv1.PriorityClass
	for _, c := range all {
		if c.GlobalDefault && (found == nil || c.Value < found.Value) {
			found = c
		}
	}
	return found, nil
}

// Validate rejects a default PriorityClass if another PriorityClass is already the default.
func (p *priorities) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	class, ok := a.GetObject().(*schedulingv1.PriorityClass)
	if !ok || !class.GlobalDefault || a.GetSubresource() != "" {
		return nil
	}
	other, err := p.defaultClass()
	if err != nil {
		return err
	}
	if other != nil && (a.GetOperation() == admission.Create || other.Name != class.Name) {
		return admission.NewForbidden(a,
			fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", other.Name))
	}
	return nil
}
