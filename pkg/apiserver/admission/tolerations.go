// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"keelson.dev/keelson/pkg/api/podspec"
)

// Annotations of a namespace: the default tolerations of its pods, and the tolerations that its
// pods may have.
const (
	defaultTolerationsAnnotation = "scheduler.alpha.kubernetes.io/defaultTolerations"
	allowedTolerationsAnnotation = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// tolerationSettings is the Configuration of podtolerationrestriction.admission.k8s.io, the
// plugin's settings.
type tolerationSettings struct {
	metav1.TypeMeta `json:",inline"`
	Default         []corev1.Toleration `json:"default,omitempty"`
	Allowed         []corev1.Toleration `json:"whitelist,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (s *tolerationSettings) DeepCopyObject() runtime.Object {
	return &tolerationSettings{s.TypeMeta, slices.Clone(s.Default), slices.Clone(s.Allowed)}
}

// tolerations is the plugin PodTolerationRestriction. It adds the default tolerations of the
// namespace to pods, and rejects tolerations that the namespace does not allow.
type tolerations struct {
	namespaces
	settings tolerationSettings
}

func newTolerations(deps Deps) (admission.Interface, error) {
	group := schema.GroupVersion{Group: "podtolerationrestriction.admission.k8s.io", Version: "v1alpha1"}
	settings, err := decodeSettings(deps.settings, group, &tolerationSettings{})
	if err != nil {
		return nil, err
	}
	at := field.NewPath("podtolerationrestriction")
	errs := append(podspec.ValidateTolerations(settings.Default, at.Child("default")),
		podspec.ValidateTolerations(settings.Allowed, at.Child("whitelist"))...)
	if len(errs) > 0 {
		return nil, fmt.Errorf("configuration: %w", errs.ToAggregate())
	}
	p := &tolerations{newNamespaces(deps), *settings}
	return &podPlugin{Handler: admission.NewHandler(admission.Create, admission.Update), admit: p.admit,
		validate: p.validate}, nil
}

func (p *tolerations) admit(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error {
	var more []corev1.Toleration
	if a.GetOperation() == admission.Create {
		defaults, err := p.of(ctx, a, defaultTolerationsAnnotation)
		if err != nil {
			return err
		}
		if defaults == nil {
			defaults = p.settings.Default
		}
		more = slices.Clone(defaults)
	}
	// Pods of QoS class BestEffort are evicted first under memory pressure. All other pods tolerate
	// the taint for it.
	if podspec.QOSClass(&pod.Spec) != corev1.PodQOSBestEffort {
		more = append(more, corev1.Toleration{
			Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	if len(more) > 0 {
		pod.Spec.Tolerations = mergeTolerations(pod.Spec.Tolerations, more)
	}
	return p.validate(ctx, a, pod)
}

func (p *tolerations) validate(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error {
	if len(pod.Spec.Tolerations) == 0 {
		return nil
	}
	allowed, err := p.of(ctx, a, allowedTolerationsAnnotation)
	if err != nil {
		return err
	}
	whose := "namespace"
	if allowed == nil {
		allowed, whose = p.settings.Allowed, "cluster"
	}
	if len(allowed) == 0 {
		return nil
	}
	for _, t := range pod.Spec.Tolerations {
		if !slices.ContainsFunc(allowed, func(w corev1.Toleration) bool { return covers(w, t) }) {
			return fmt.Errorf("pod tolerations (possibly merged with namespace default tolerations) "+
				"conflict with its %s whitelist", whose)
		}
	}
	return nil
}

// of returns the tolerations in an annotation of the namespace of a, or nil if it does not have the
// annotation.
func (p *tolerations) of(ctx context.Context, a admission.Attributes, annotation string) ([]corev1.Toleration, error) {
	ns, err := p.get(ctx, a.GetNamespace())
	if err != nil {
		return nil, err
	}
	text, ok := ns.Annotations[annotation]
	if !ok {
		return nil, nil
	}
	var list []corev1.Toleration
	if text != "" {
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return nil, err // returned unwrapped, as in Kubernetes
		}
	}
	return append([]corev1.Toleration{}, list...), nil
}

// mergeTolerations returns the tolerations of both lists, without those that another one covers. Of
// equal tolerations, it keeps the first.
func mergeTolerations(list, more []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(list, more)
	var merged []corev1.Toleration
	for i, t := range all {
		covered := func(by corev1.Toleration) bool { return covers(by, t) }
		wider := func(by corev1.Toleration) bool { return !equality.Semantic.DeepEqual(by, t) && covers(by, t) }
		if !slices.ContainsFunc(merged, covered) && !slices.ContainsFunc(all[i+1:], wider) {
			merged = append(merged, t)
		}
	}
	return merged
}

// covers reports whether the toleration wide tolerates all taints that t tolerates.
func covers(wide, t corev1.Toleration) bool {
	if equality.Semantic.DeepEqual(wide, t) {
		return true
	}
	if t.Key != wide.Key && (wide.Key != "" || wide.Operator != corev1.TolerationOpExists) {
		return false
	}
	if t.Effect != wide.Effect && wide.Effect != "" {
		return false
	}
	if most := wide.TolerationSeconds; wide.Effect == corev1.TaintEffectNoExecute && most != nil {
		if t.TolerationSeconds == nil || *t.TolerationSeconds > *most {
			return false
		}
	}
	switch wide.Operator {
	case corev1.TolerationOpEqual, "":
		return t.Operator == corev1.TolerationOpEqual && t.Value == wide.Value
	case corev1.TolerationOpExists:
		return true
	}
	return false
}
