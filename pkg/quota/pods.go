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

// computeNames are the names that count what pods ask for, beside prefixed ones.
func computeNames() []corev1.ResourceName {
	return []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
		corev1.ResourcePods,
	}
}

// mandatory are the names whose quota makes every container state its share.
func mandatory() []corev1.ResourceName {
	return []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
	}
}

const requestsPrefix = corev1.DefaultResourceRequestsPrefix

func pods(clk clock.Clock) *evaluator[*corev1.Pod] {
	countName, compute := objects("pods"), computeNames()
	return &evaluator[*corev1.Pod]{
		resource: core("pods"),
		matching: func(n corev1.ResourceName) bool {
			return n == countName || slices.Contains(compute, n) || hugePages(n) ||
				hugePages(corev1.ResourceName(strings.TrimPrefix(string(n), requestsPrefix))) || extendedQuota(n)
		},
		usage: func(p *corev1.Pod) corev1.ResourceList {
			out := corev1.ResourceList{countName: count(1)}
			if counts(p, clk.Now()) {
				options := podresources.PodResourcesOptions{UseStatusResources: true}
				out = quota.Add(out, shares(podresources.PodRequests(p, options), podresources.PodLimits(p, options)))
			}
			return out
		},
		handles:     podWrite,
		inScope:     podInScope,
		constraints: podConstraints,
	}
}

// podWrite reports whether a write may change what a pod counts for.
func podWrite(a admission.Attributes) bool {
	switch a.GetSubresource() {
	case "":
		if a.GetOperation() == admission.Update {
			pod, ok := a.GetObject().(*corev1.Pod)
			old, ok2 := a.GetOldObject().(*corev1.Pod)
			return ok && ok2 && bounded(pod) != bounded(old)
		}
		return a.GetOperation() == admission.Create
	case "resize":
		return a.GetOperation() == admission.Update
	}
	return false
}

// counts reports whether a pod is still charged: not when it has ended, nor when
// it ought to have.
func counts(p *corev1.Pod, now time.Time) bool {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return false
	}
	if p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil {
		end := p.DeletionTimestamp.Add(time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
		return !now.After(end)
	}
	return true
}

func hugePages(n corev1.ResourceName) bool {
	return strings.HasPrefix(string(n), corev1.ResourceHugePagesPrefix)
}

// extended reports whether n is a resource that is not Kubernetes' own, or the
// devices of a class.
func extended(n corev1.ResourceName) bool {
	s := string(n)
	if strings.HasPrefix(s, resourcev1.ResourceDeviceClassPrefix) {
		return true
	}
	domain, _, ok := strings.Cut(s, "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasPrefix(s, requestsPrefix)
}

func extendedQuota(n corev1.ResourceName) bool {
	rest, ok := strings.CutPrefix(string(n), requestsPrefix)
	return ok && extended(corev1.ResourceName(rest))
}

// shares names requests and limits as quotas do.
func shares(requests, limits corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourcePods: count(1)}
	for n, q := range requests {
		switch {
		case n == corev1.ResourceCPU || n == corev1.ResourceMemory || n == corev1.ResourceEphemeralStorage || hugePages(n):
			out[n], out[corev1.ResourceName(requestsPrefix+string(n))] = q, q
		case extended(n):
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
		have := shares(c.Resources.Requests, c.Resources.Limits)
		for _, n := range quota.Intersection(required, mandatory()) {
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

// bounded reports whether a pod ends by itself.
func bounded(p *corev1.Pod) bool {
	return p.Spec.ActiveDeadlineSeconds != nil && *p.Spec.ActiveDeadlineSeconds >= 0
}

func bestEffort(p *corev1.Pod) bool {
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
		return bounded(p), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !bounded(p), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(p), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(p), nil
	case corev1.ResourceQuotaScopePriorityClass:
		if s.Operator == corev1.ScopeSelectorOpExists {
			return p.Spec.PriorityClassName != "", nil
		}
		return selects(s, p.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossNamespace(p), nil
	}
	return false, nil
}

// selects reports whether a selector takes value; an empty value is none.
func selects(s corev1.ScopedResourceSelectorRequirement, value string) (bool, error) {
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

// crossNamespace reports whether a pod's affinity looks into other namespaces.
func crossNamespace(p *corev1.Pod) bool {
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
