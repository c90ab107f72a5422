// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quota computes the usage of objects for resource quotas: pods by the requests and limits
// of their containers, claims by their storage or devices, services by their ports, and all objects
// by number.
//
// Admission uses it to check how much a write would add, and the quota controller to add up the
// usage of a namespace. Limits, scopes and arithmetic are those of the library
// k8s.io/apiserver/pkg/quota/v1.
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

// Configuration returns the evaluators of all kinds that ResourceQuotas can limit.
func Configuration(clk clock.Clock, facts DeviceSources) quota.Configuration {
	pods := newPodEvaluator(clk)
	evaluators := []quota.Evaluator{pods, newServiceEvaluator(), newClaimEvaluator(),
		newDeviceClaimEvaluator(facts, pods.usage)}
	for name, alias := range map[string]corev1.ResourceName{
		"configmaps":             corev1.ResourceConfigMaps,
		"resourcequotas":         corev1.ResourceQuotas,
		"replicationcontrollers": corev1.ResourceReplicationControllers,
		"secrets":                corev1.ResourceSecrets,
	} {
		evaluators = append(evaluators, generic.NewObjectCountEvaluator(coreResource(name), nil, alias))
	}
	return generic.NewConfiguration(evaluators, IgnoredResources())
}

// IgnoredResources returns the resources that no quota counts: resources that are not stored, and
// events.
func IgnoredResources() map[schema.GroupResource]struct{} {
	out := map[schema.GroupResource]struct{}{}
	for group, names := range map[string][]string{
		"":                      {"bindings", "componentstatuses", "events"},
		"events.k8s.io":         {"events"},
		"authentication.k8s.io": {"tokenreviews", "selfsubjectreviews"},
		"authorization.k8s.io": {"subjectaccessreviews", "selfsubjectaccessreviews",
			"localsubjectaccessreviews", "selfsubjectrulesreviews"},
	} {
		for _, n := range names {
			out[schema.GroupResource{Group: group, Resource: n}] = struct{}{}
		}
	}
	return out
}

// evaluator computes the usage of objects of type T. The functions handles, inScope and constraints
// may be nil. Then creates and updates of the object itself are handled, no object is in any scope,
// and objects have no constraints.
type evaluator[T runtime.Object] struct {
	resource    schema.GroupResource
	counts      func(name corev1.ResourceName) bool
	usage       func(obj T) corev1.ResourceList
	handles     func(a admission.Attributes) bool
	inScope     func(s corev1.ScopedResourceSelectorRequirement, obj T) (bool, error)
	constraints func(required []corev1.ResourceName, obj T) error
}

var _ quota.Evaluator = (*evaluator[*corev1.Pod])(nil)

func castTo[T runtime.Object](obj runtime.Object) (T, error) {
	t, ok := obj.(T)
	if !ok {
		return t, fmt.Errorf("expected %T, got %T", t, obj)
	}
	return t, nil
}

// GroupResource returns the resource whose objects are evaluated.
func (e *evaluator[T]) GroupResource() schema.GroupResource { return e.resource }

// Constraints returns an error if the object lacks a value that a quota for one of the names in
// required needs, for example a CPU request.
func (e *evaluator[T]) Constraints(required []corev1.ResourceName, item runtime.Object) error {
	obj, err := castTo[T](item)
	if err != nil || e.constraints == nil {
		return err
	}
	return e.constraints(required, obj)
}

// Handles reports whether a write may change the usage of its object.
func (e *evaluator[T]) Handles(a admission.Attributes) bool {
	if e.handles != nil {
		return e.handles(a)
	}
	return a.GetSubresource() == "" && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}

func (e *evaluator[T]) scope(s corev1.ScopedResourceSelectorRequirement, item runtime.Object) (bool, error) {
	obj, err := castTo[T](item)
	if err != nil || e.inScope == nil {
		return false, err
	}
	return e.inScope(s, obj)
}

// Matches reports whether quota q counts the object.
func (e *evaluator[T]) Matches(q *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(q, item, e.MatchingResources, e.scope)
}

// MatchingScopes returns the scopes in scopes to which the object belongs.
func (e *evaluator[T]) MatchingScopes(item runtime.Object, scopes []corev1.ScopedResourceSelectorRequirement) (
	[]corev1.ScopedResourceSelectorRequirement, error) {
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

// UncoveredQuotaScopes returns the scopes in limited that are not in matched.
func (e *evaluator[T]) UncoveredQuotaScopes(limited, matched []corev1.ScopedResourceSelectorRequirement) (
	[]corev1.ScopedResourceSelectorRequirement, error) {
	out := []corev1.ScopedResourceSelectorRequirement{}
	if e.inScope == nil {
		return out, nil
	}
	for _, s := range limited {
		if !slices.ContainsFunc(matched, func(m corev1.ScopedResourceSelectorRequirement) bool {
			return m.ScopeName == s.ScopeName
		}) {
			out = append(out, s)
		}
	}
	return out, nil
}

// MatchingResources returns the quota names in names that count objects of this kind.
func (e *evaluator[T]) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	out := []corev1.ResourceName{}
	for _, n := range names {
		if e.counts(n) {
			out = append(out, n)
		}
	}
	return out
}

// Usage returns the usage of one object.
func (e *evaluator[T]) Usage(item runtime.Object) (corev1.ResourceList, error) {
	obj, err := castTo[T](item)
	if err != nil {
		return corev1.ResourceList{}, err
	}
	return e.usage(obj), nil
}

var errNoUsageStats = errors.New("quota evaluators do not list objects")

// UsageStats implements quota.Evaluator. It always returns an error. It is never called: admission
// does not need it, and the quota controller adds up the usage of the objects that it watches.
func (e *evaluator[T]) UsageStats(quota.UsageStatsOptions) (quota.UsageStats, error) {
	return quota.UsageStats{}, errNoUsageStats
}

func quantity(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

// objectCountName returns the quota name that limits the number of objects of a core resource.
func objectCountName(name string) corev1.ResourceName {
	return generic.ObjectCountQuotaResourceNameFor(schema.GroupResource{Resource: name})
}

func coreResource(name string) schema.GroupResource {
	return corev1.SchemeGroupVersion.WithResource(name).GroupResource()
}
