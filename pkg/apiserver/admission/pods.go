// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// podPlugin is a plugin for pods. If admit or validate is nil, it admits all pods in that phase.
type podPlugin struct {
	*admission.Handler
	// subresources are the subresources that the plugin handles, in addition to the pod itself.
	subresources []string
	admit        func(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error
	validate     func(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error
}

func (p *podPlugin) pod(a admission.Attributes) (*corev1.Pod, bool) {
	if r := a.GetResource(); r.Resource != "pods" || r.Group != "" {
		return nil, false
	}
	if sub := a.GetSubresource(); sub != "" && !contains(p.subresources, sub) {
		return nil, false
	}
	pod, ok := a.GetObject().(*corev1.Pod)
	return pod, ok
}

// Admit calls admit for pods.
func (p *podPlugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := p.pod(a)
	if !ok || p.admit == nil {
		return nil
	}
	return p.admit(ctx, a, pod)
}

// Validate calls validate for pods.
func (p *podPlugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := p.pod(a)
	if !ok || p.validate == nil {
		return nil
	}
	return p.validate(ctx, a, pod)
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

// typed is a plugin for objects of type T. If admit or validate is nil, it admits all objects in
// that phase.
type typed[T any] struct {
	*admission.Handler
	group, resource, subresource string
	admit                        func(ctx context.Context, a admission.Attributes, obj T) error
	validate                     func(ctx context.Context, a admission.Attributes, obj T) error
}

// object returns the request's object, or false if the plugin has nothing to do with the request. An
// object of another type than T is an error, so that no check is skipped by mistake.
func (p *typed[T]) object(a admission.Attributes) (T, bool, error) {
	var zero T
	r := a.GetResource()
	if r.Resource != p.resource || r.Group != p.group || a.GetSubresource() != p.subresource || a.GetObject() == nil {
		return zero, false, nil
	}
	obj, ok := a.GetObject().(T)
	if !ok {
		return zero, false, admission.NewForbidden(a, fmt.Errorf("expected type %T, got: %T", zero, a.GetObject()))
	}
	return obj, true, nil
}

// Admit calls admit for objects of type T.
func (p *typed[T]) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if p.admit == nil {
		return nil
	}
	obj, ok, err := p.object(a)
	if !ok {
		return err
	}
	return p.admit(ctx, a, obj)
}

// Validate calls validate for objects of type T.
func (p *typed[T]) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if p.validate == nil {
		return nil
	}
	obj, ok, err := p.object(a)
	if !ok {
		return err
	}
	return p.validate(ctx, a, obj)
}
