// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	podresources "k8s.io/component-helpers/resource"

	"keelson.dev/api/clock"
)

// computeNames returns the quota names that count requests and limits of pods and have no variable
// part. Names for huge pages and extended resources are not included.
func computeNames() []corev1.ResourceName {
	return []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
		corev1.ResourcePods,
	}
}

// requiredPerContainer returns the quota names that require every container to have a request or
// limit for the resource.
func requiredPerContainer() []corev1.ResourceName {
	return []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
	}
}

const requestsPrefix = corev1.DefaultResourceRequestsPrefix

func newPodEvaluator(clk clock.Clock) *evaluator[*corev1.Pod] {
	countName, compute := objectCountName("pods"), computeNames()
	return &evaluator[*corev1.Pod]{
		resource: coreResource("pods"),
		counts: func(n corev1.ResourceName) bool {
			return n == countName || slices.Contains(compute, n) || isHugePages(n) ||
				isHugePages(corev1.ResourceName(strings.TrimPrefix(string(n), requestsPrefix))) || isExtendedQuota(n)
		},
		usage: func(p *corev1.Pod) corev1.ResourceList {
			out := corev1.ResourceList{countName: quantity(1)}
			if isCharged(p, clk.Now()) {
				options := podresources.PodResourcesOptions{UseStatusResources: true}
				out = quota.Add(out, computeUsage(podresources.PodRequests(p, options), podresources.PodLimits(p, options)))
			}
			return out
		},
		handles:     podWriteHandled,
		inScope:     podInScope,
		constraints: podConstraints,
	}
}

// podWriteHandled reports whether a write may change the usage of a pod, so that its quota has to
// be checked.
func podWriteHandled(a admission.Attributes) bool {
	switch a.GetSubresource() {
	case "":
		if a.GetOperation() == admission.Update {
			pod, ok := a.GetObject().(*corev1.Pod)
			old, ok2 := a.GetOldObject().(*corev1.Pod)
			return ok && ok2 && hasDeadline(pod) != hasDeadline(old)
		}
		return a.GetOperation() == admission.Create
	case "resize":
		return a.GetOperation() == admission.Update
	}
	return false
}

// isCharged reports whether a pod is charged for compute resources. It is not if it has failed or
// succeeded, or if it is being deleted and its grace period is over.
func isCharged(p *corev1.Pod, now time.Time) bool {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return false
	}
	if p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil {
		end := p.DeletionTimestamp.Add(time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
		return !now.After(end)
	}
	return true
}

func isHugePages(n corev1.ResourceName) bool {
	return strings.HasPrefix(string(n), corev1.ResourceHugePagesPrefix)
}

// isExtended reports whether n is an extended resource, which has a domain that is not one of
// Kubernetes, or the resource that stands for the devices of a class.
func isExtended(n corev1.ResourceName) bool {
	s := string(n)
	if strings.HasPrefix(s, resourcev1.ResourceDeviceClassPrefix) {
		return true
	}
	domain, _, ok := strings.Cut(s, "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") &&
		!strings.HasPrefix(s, requestsPrefix)
}

func isExtendedQuota(n corev1.ResourceName) bool {
	rest, ok := strings.CutPrefix(string(n), requestsPrefix)
	return ok && isExtended(corev1.ResourceName(rest))
}

// computeUsage returns requests and limits under the names that they have in quotas.
func computeUsage(requests, limits corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourcePods: quantity(1)}
	for n, q := range requests {
		switch {
		case n == corev1.ResourceCPU || n == corev1.ResourceMemory || n == corev1.ResourceEphemeralStorage || isHugePages(n):
			out[n], out[corev1.ResourceName(requestsPrefix+string(n))] = q, q
		case isExtended(n):
			out[corev1.ResourceName(requestsPrefix+string(n))] = q
		}
	}
	for _, n := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, ok := limits[n]; ok {
			out["limits."+n] = q
		}
	}
	return out
}

func podConstraints(required []corev1.ResourceName, p *corev1.Pod) error {
	if podresources.IsPodLevelResourcesSet(p) {
		return nil
	}
	missing := map[corev1.ResourceName]sets.Set[string]{}
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		have := computeUsage(c.Resources.Requests, c.Resources.Limits)
		for _, n := range quota.Intersection(required, requiredPerContainer()) {
			if _, ok := have[n]; !ok {
				if missing[n] == nil {
					missing[n] = sets.New[string]()
				}
				missing[n].Insert(c.Name)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var parts []string
	for _, n := range slices.Sorted(maps.Keys(missing)) {
		parts = append(parts, fmt.Sprintf("%s for: %s", n, strings.Join(sets.List(missing[n]), ",")))
	}
	return fmt.Errorf("must specify %s", strings.Join(parts, "; "))
}

// hasDeadline reports whether a pod sets activeDeadlineSeconds.
func hasDeadline(p *corev1.Pod) bool {
	return p.Spec.ActiveDeadlineSeconds != nil && *p.Spec.ActiveDeadlineSeconds >= 0
}

func isBestEffort(p *corev1.Pod) bool {
	if q := p.Status.QOSClass; q != "" {
		return q == corev1.PodQOSBestEffort
	}
	positive := func(list corev1.ResourceList) bool {
		cpu, memory := list[corev1.ResourceCPU], list[corev1.ResourceMemory]
		return cpu.Sign() > 0 || memory.Sign() > 0
	}
	if r := p.Spec.Resources; r != nil && (positive(r.Requests) || positive(r.Limits)) {
		return false
	}
	return !slices.ContainsFunc(slices.Concat(p.Spec.Containers, p.Spec.InitContainers), func(c corev1.Container) bool {
		return positive(c.Resources.Requests) || positive(c.Resources.Limits)
	})
}

func podInScope(s corev1.ScopedResourceSelectorRequirement, p *corev1.Pod) (bool, error) {
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return hasDeadline(p), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !hasDeadline(p), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort(p), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort(p), nil
	case corev1.ResourceQuotaScopePriorityClass:
		if s.Operator == corev1.ScopeSelectorOpExists {
			return p.Spec.PriorityClassName != "", nil
		}
		return selectorMatches(s, p.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return hasCrossNamespaceAffinity(p), nil
	}
	return false, nil
}

// selectorMatches reports whether scope selector s matches value. value is empty if the object has
// no value for the scope.
func selectorMatches(s corev1.ScopedResourceSelectorRequirement, value string) (bool, error) {
	operator := map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn: selection.In, corev1.ScopeSelectorOpNotIn: selection.NotIn,
		corev1.ScopeSelectorOpExists: selection.Exists, corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}[s.Operator]
	requirement, err := labels.NewRequirement(string(s.ScopeName), operator, s.Values)
	if err != nil {
		return false, fmt.Errorf("scope selector: %w", err)
	}
	set := labels.Set{}
	if value != "" {
		set[string(s.ScopeName)] = value
	}
	return requirement.Matches(set), nil
}

// hasCrossNamespaceAffinity reports whether a pod's affinity terms refer to other namespaces.
func hasCrossNamespaceAffinity(p *corev1.Pod) bool {
	if p.Spec.Affinity == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	add := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		terms = append(terms, required...)
		for _, w := range preferred {
			terms = append(terms, w.PodAffinityTerm)
		}
	}
	if a := p.Spec.Affinity.PodAffinity; a != nil {
		add(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := p.Spec.Affinity.PodAntiAffinity; a != nil {
		add(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool {
		return len(t.Namespaces) > 0 || t.NamespaceSelector != nil
	})
}
