// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	corelisters "k8s.io/client-go/listers/core/v1"
	podresources "k8s.io/component-helpers/resource"
)

// limitRanger enforces the LimitRanges of a namespace. It sets defaults for containers, and
// enforces limits for containers, pods and claims.
type limitRanger struct {
	*admission.Handler
	lister corelisters.LimitRangeLister
}

const limitRangerAnnotation = "kubernetes.io/limit-ranger"

func newLimitRanger(deps Deps) (admission.Interface, error) {
	informer := deps.Informers.Core().V1().LimitRanges()
	p := &limitRanger{admission.NewHandler(admission.Create, admission.Update), informer.Lister()}
	p.SetReadyFunc(informer.Informer().HasSynced)
	return p, nil
}

// applies reports whether limit ranges apply to a write. Of the updates of a pod, only those by the
// subresource resize can change resources.
func (p *limitRanger) applies(a admission.Attributes) bool {
	if old, ok := a.GetOldObject().(metav1.Object); ok && old.GetDeletionTimestamp() != nil {
		return false
	}
	switch a.GetObject().(type) {
	case *corev1.Pod:
		if a.GetSubresource() == "resize" {
			return a.GetOperation() == admission.Update
		}
		return a.GetSubresource() == "" && a.GetOperation() == admission.Create
	case *corev1.PersistentVolumeClaim:
		return a.GetSubresource() == ""
	}
	return false
}

func (p *limitRanger) each(a admission.Attributes, fn func(*corev1.LimitRange) error) error {
	if !p.applies(a) {
		return nil
	}
	items, err := p.lister.LimitRanges(a.GetNamespace()).List(labels.Everything())
	if err != nil {
		return admission.NewForbidden(a,
			fmt.Errorf("unable to %s %v at this time because there was an error enforcing limit ranges",
				a.GetOperation(), a.GetResource()))
	}
	slices.SortFunc(items, func(x, y *corev1.LimitRange) int { return strings.Compare(x.Name, y.Name) })
	for _, item := range items {
		if err := fn(item); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}

// Admit sets default requests and limits.
func (p *limitRanger) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return nil
	}
	return p.each(a, func(r *corev1.LimitRange) error {
		applyDefaults(r, pod)
		return nil
	})
}

func applyDefaults(r *corev1.LimitRange, pod *corev1.Pod) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for _, l := range r.Spec.Limits {
		if l.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, l.DefaultRequest)
			maps.Copy(limits, l.Default)
		}
	}
	var notes []string
	for i := range pod.Spec.Containers {
		notes = defaultContainer(&pod.Spec.Containers[i], "container", requests, limits, notes)
	}
	for i := range pod.Spec.InitContainers {
		notes = defaultContainer(&pod.Spec.InitContainers[i], "init container", requests, limits, notes)
	}
	if len(notes) == 0 {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[limitRangerAnnotation] = "LimitRanger plugin set: " + strings.Join(notes, "; ")
}

func defaultContainer(c *corev1.Container, what string, requests, limits corev1.ResourceList, notes []string) []string {
	note := func(kind string, names []string) {
		if len(names) > 0 {
			slices.Sort(names)
			notes = append(notes, fmt.Sprintf("%s %s for %s %s", strings.Join(names, ", "), kind, what, c.Name))
		}
	}
	setLimits := fill(&c.Resources.Limits, limits)
	setRequests := fill(&c.Resources.Requests, requests)
	note("request", setRequests)
	note("limit", setLimits)
	return notes
}

// fill sets in list the defaults that are missing. It returns the names of the resources that it
// has set.
func fill(list *corev1.ResourceList, defaults corev1.ResourceList) []string {
	var set []string
	for k, v := range defaults {
		if _, ok := (*list)[k]; ok {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[k] = v.DeepCopy()
		set = append(set, string(k))
	}
	return set
}

// Validate rejects resources that exceed the limits, unless the update does not change them.
func (p *limitRanger) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return p.each(a, func(r *corev1.LimitRange) error {
		var errs []error
		for i := range r.Spec.Limits {
			l := &r.Spec.Limits[i]
			switch o := a.GetObject().(type) {
			case *corev1.Pod:
				old, _ := a.GetOldObject().(*corev1.Pod)
				errs = append(errs, checkPod(l, o, old)...)
			case *corev1.PersistentVolumeClaim:
				if l.Type == corev1.LimitTypePersistentVolumeClaim {
					old, _ := a.GetOldObject().(*corev1.PersistentVolumeClaim)
					errs = append(errs, checkClaim(l, o, old)...)
				}
			}
		}
		return utilerrors.NewAggregate(errs)
	})
}

// amounts are the resources of a container, pod or claim. old has those of the stored object, or
// nil on create.
type amounts struct {
	requests, limits corev1.ResourceList
	old              *amounts
}

// request returns the request for a resource. The result set reports whether there is one, and the
// result kept whether the update does not change it.
func (m *amounts) request(name corev1.ResourceName) (q resource.Quantity, set, kept bool) {
	q, set = m.requests[name]
	return q, set, m.old != nil && sameAmount(m.requests, m.old.requests, name)
}

// limit returns the limit of a resource. The result set reports whether there is one, and the
// result kept whether the update does not change it.
func (m *amounts) limit(name corev1.ResourceName) (q resource.Quantity, set, kept bool) {
	q, set = m.limits[name]
	return q, set, m.old != nil && sameAmount(m.limits, m.old.limits, name)
}

func sameAmount(list, old corev1.ResourceList, name corev1.ResourceName) bool {
	q, set := list[name]
	stored, was := old[name]
	return set == was && q.Cmp(stored) == 0
}

// checkPod checks the resources of a pod. old is the stored pod, or nil on create.
func checkPod(l *corev1.LimitRangeItem, pod, old *corev1.Pod) []error {
	var errs []error
	switch l.Type {
	case corev1.LimitTypeContainer:
		stored := map[string]*amounts{}
		if old != nil {
			for _, c := range slices.Concat(old.Spec.Containers, old.Spec.InitContainers) {
				stored[c.Name] = &amounts{requests: c.Resources.Requests, limits: c.Resources.Limits}
			}
		}
		for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			errs = append(errs, checkResources(l, &amounts{c.Resources.Requests, c.Resources.Limits, stored[c.Name]})...)
		}
	case corev1.LimitTypePod:
		total := podAmounts(pod)
		if old != nil {
			total.old = podAmounts(old)
		}
		errs = checkResources(l, total)
	}
	return errs
}

func podAmounts(pod *corev1.Pod) *amounts {
	options := podresources.PodResourcesOptions{ExcludeOverhead: true}
	return &amounts{requests: podresources.PodRequests(pod, options), limits: podresources.PodLimits(pod, options)}
}

func checkResources(l *corev1.LimitRangeItem, m *amounts) []error {
	var errs []error
	for k, bound := range ordered(l.Min) {
		errs = add(errs, checkMin(l.Type, k, bound, m))
	}
	for k, bound := range ordered(l.Max) {
		errs = add(errs, checkMax(l.Type, k, bound, m))
	}
	for k, bound := range ordered(l.MaxLimitRequestRatio) {
		errs = add(errs, checkRatio(l.Type, k, bound, m))
	}
	return errs
}

// checkClaim checks the requests of a claim. old is the stored claim, or nil on create.
func checkClaim(l *corev1.LimitRangeItem, claim, old *corev1.PersistentVolumeClaim) []error {
	m := &amounts{requests: claim.Spec.Resources.Requests}
	if old != nil {
		m.old = &amounts{requests: old.Spec.Resources.Requests}
	}
	var errs []error
	for k, bound := range ordered(l.Min) {
		errs = add(errs, checkMin(l.Type, k, bound, m))
	}
	for k, bound := range ordered(l.Max) {
		req, set, kept := m.request(k)
		switch {
		case kept:
		case !set:
			errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", k, l.Type, bound.String()))
		case req.Cmp(bound) > 0:
			errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s, but request is %s", k, l.Type,
				bound.String(), req.String()))
		}
	}
	return errs
}

func add(errs []error, err error) []error {
	if err == nil {
		return errs
	}
	return append(errs, err)
}

// ordered iterates over list in the order of names, so that error messages are always the same.
func ordered(list corev1.ResourceList) func(yield func(corev1.ResourceName, resource.Quantity) bool) {
	return func(yield func(corev1.ResourceName, resource.Quantity) bool) {
		for _, k := range slices.Sorted(maps.Keys(list)) {
			if !yield(k, list[k]) {
				return
			}
		}
	}
}

func checkMin(kind corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, m *amounts) error {
	req, set, reqKept := m.request(name)
	lim, limited, limKept := m.limit(name)
	switch {
	case !set && !reqKept:
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", name, kind, bound.String())
	case set && !reqKept && req.Cmp(bound) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", name, kind, bound.String(), req.String())
	case limited && !limKept && lim.Cmp(bound) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", name, kind, bound.String(), lim.String())
	}
	return nil
}

func checkMax(kind corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, m *amounts) error {
	req, set, reqKept := m.request(name)
	lim, limited, limKept := m.limit(name)
	switch {
	case !limited && !limKept:
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", name, kind, bound.String())
	case limited && !limKept && lim.Cmp(bound) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", name, kind, bound.String(), lim.String())
	case set && !reqKept && req.Cmp(bound) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, kind, bound.String(), req.String())
	}
	return nil
}

func checkRatio(kind corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, m *amounts) error {
	req, set, reqKept := m.request(name)
	lim, limited, limKept := m.limit(name)
	switch {
	case reqKept && limKept:
		return nil
	case !set || req.IsZero():
		return fmt.Errorf(
			"%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name,
			kind, bound.String())
	case !limited || lim.IsZero():
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0",
			name, kind, bound.String())
	}
	// Do not compare floating-point numbers: rounding could make a limit that equals the maximum
	// exceed it.
	most := bound.DeepCopy()
	most.AsDec().Mul(bound.AsDec(), req.AsDec())
	if lim.Cmp(most) > 0 {
		ratio := lim.AsApproximateFloat64() / req.AsApproximateFloat64()
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, kind,
			bound.String(), ratio)
	}
	return nil
}
