// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quota says what objects count for in resource quotas: pods by what
// their containers ask for, claims by their storage or by their devices, services
// by their ports, and everything by its number.
//
// Admission asks it what a write would add, and the quota controller what a
// namespace uses. Limits, scopes and arithmetic are the library's
// (k8s.io/apiserver/pkg/quota/v1).
package quota

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"

	"keelson.dev/api/clock"
)

// Configuration returns the evaluators of the built-in kinds.
func Configuration(clk clock.Clock, facts Devices) quota.Configuration {
	pods := pods(clk)
	evaluators := []quota.Evaluator{pods, services(), claims(), devices(facts, pods.usage)}
	for name, alias := range map[string]corev1.ResourceName{
		"configmaps":             corev1.ResourceConfigMaps,
		"resourcequotas":         corev1.ResourceQuotas,
		"replicationcontrollers": corev1.ResourceReplicationControllers,
		"secrets":                corev1.ResourceSecrets,
	} {
		evaluators = append(evaluators, generic.NewObjectCountEvaluator(core(name), nil, alias))
	}
	return generic.NewConfiguration(evaluators, Ignored())
}

// Ignored are the resources that no quota counts: what is not stored, and events.
func Ignored() map[schema.GroupResource]struct{} {
	out := map[schema.GroupResource]struct{}{}
	for group, names := range map[string][]string{
		"":                      {"bindings", "componentstatuses", "events"},
		"events.k8s.io":         {"events"},
		"authentication.k8s.io": {"tokenreviews", "selfsubjectreviews"},
		"authorization.k8s.io":  {"subjectaccessreviews", "selfsubjectaccessreviews", "localsubjectaccessreviews", "selfsubjectrulesreviews"},
	} {
		for _, n := range names {
			out[schema.GroupResource{Group: group, Resource: n}] = struct{}{}
		}
	}
	return out
}

// evaluator evaluates objects of type T. Functions left nil mean: handles
// creates and updates of the object itself, no scopes, no constraints.
type evaluator[T runtime.Object] struct {
	resource    schema.GroupResource
	matching    func(name corev1.ResourceName) bool
	usage       func(obj T) corev1.ResourceList
	handles     func(a admission.Attributes) bool
	inScope     func(s corev1.ScopedResourceSelectorRequirement, obj T) (bool, error)
	constraints func(required []corev1.ResourceName, obj T) error
}

var _ quota.Evaluator = (*evaluator[*corev1.Pod])(nil)

func typed[T runtime.Object](obj runtime.Object) (T, error) {
	t, ok := obj.(T)
	if !ok {
		return t, fmt.Errorf("expected %T, got %T", t, obj)
	}
	return t, nil
}

// GroupResource is the resource evaluated.
func (e *evaluator[T]) GroupResource() schema.GroupResource { return e.resource }

// Constraints refuses objects that leave out what a quota counts.
func (e *evaluator[T]) Constraints(required []corev1.ResourceName, item runtime.Object) error {
	obj, err := typed[T](item)
	if err != nil || e.constraints == nil {
		return err
	}
	return e.constraints(required, obj)
}

// Handles reports whether a write may change usage.
func (e *evaluator[T]) Handles(a admission.Attributes) bool {
	if e.handles != nil {
		return e.handles(a)
	}
	return a.GetSubresource() == "" && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}

func (e *evaluator[T]) scope(s corev1.ScopedResourceSelectorRequirement, item runtime.Object) (bool, error) {
	obj, err := typed[T](item)
	if err != nil || e.inScope == nil {
		return false, err
	}
	return e.inScope(s, obj)
}

// Matches reports whether a quota counts an object.
func (e *evaluator[T]) Matches(q *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(q, item, e.MatchingResources, e.scope)
}

// MatchingScopes are those of scopes that an object is in.
func (e *evaluator[T]) MatchingScopes(item runtime.Object, scopes []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	out := []corev1.ScopedResourceSelectorRequirement{}
	for _, s := range scopes {
		ok, err := e.scope(s, item)
		if err != nil {
			return nil, fmt.Errorf("error on matching scope %v: %w", s, err)
		}
		if ok {
			out = append(out, s)
		}
	}
	return out, nil
}

// UncoveredQuotaScopes are those of limited that no matched one covers.
func (e *evaluator[T]) UncoveredQuotaScopes(limited, matched []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	out := []corev1.ScopedResourceSelectorRequirement{}
	if e.inScope == nil {
		return out, nil
	}
	for _, s := range limited {
		if !slices.ContainsFunc(matched, func(m corev1.ScopedResourceSelectorRequirement) bool { return m.ScopeName == s.ScopeName }) {
			out = append(out, s)
		}
	}
	return out, nil
}

// MatchingResources are those of names that count objects of this kind.
func (e *evaluator[T]) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	out := []corev1.ResourceName{}
	for _, n := range names {
		if e.matching(n) {
			out = append(out, n)
		}
	}
	return out
}

// Usage is what one object counts for.
func (e *evaluator[T]) Usage(item runtime.Object) (corev1.ResourceList, error) {
	obj, err := typed[T](item)
	if err != nil {
		return corev1.ResourceList{}, err
	}
	return e.usage(obj), nil
}

var errNoUsageStats = errors.New("quota evaluators do not list objects")

// UsageStats implements quota.Evaluator. It always returns an error: admission does not call it,
// and the quota controller adds up the usage of the objects that it watches.
func (e *evaluator[T]) UsageStats(quota.UsageStatsOptions) (quota.UsageStats, error) {
	return quota.UsageStats{}, errNoUsageStats
}

func count(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// objects is the name that counts the stored objects of a resource.
func objects(name string) corev1.ResourceName {
	return generic.ObjectCountQuotaResourceNameFor(schema.GroupResource{Resource: name})
}

func core(name string) schema.GroupResource {
	return corev1.SchemeGroupVersion.WithResource(name).GroupResource()
}
