// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/utils/ptr"
)

func newServiceEvaluator() quota.Evaluator {
	countName := objectCountName("services")
	return &evaluator[*corev1.Service]{
		resource: coreResource("services"),
		counts: func(n corev1.ResourceName) bool {
			return slices.Contains([]corev1.ResourceName{countName, corev1.ResourceServices,
				corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers}, n)
		},
		usage: func(s *corev1.Service) corev1.ResourceList {
			out := corev1.ResourceList{
				countName: quantity(1), corev1.ResourceServices: quantity(1),
				corev1.ResourceServicesLoadBalancers: quantity(0), corev1.ResourceServicesNodePorts: quantity(0),
			}
			switch s.Spec.Type {
			case corev1.ServiceTypeNodePort:
				out[corev1.ResourceServicesNodePorts] = quantity(len(s.Spec.Ports))
			case corev1.ServiceTypeLoadBalancer:
				out[corev1.ResourceServicesLoadBalancers] = quantity(1)
				out[corev1.ResourceServicesNodePorts] = quantity(countNodePorts(s))
			}
			return out
		},
	}
}

// countNodePorts returns how many node ports a service of type LoadBalancer will have. When its
// quota is checked, node ports have not been allocated yet.
func countNodePorts(s *corev1.Service) int {
	if a := s.Spec.AllocateLoadBalancerNodePorts; a == nil || *a {
		return len(s.Spec.Ports)
	}
	n := 0
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			n++
		}
	}
	return n
}

const classInfix = ".storageclass.storage.k8s.io/"

func newClaimEvaluator() quota.Evaluator {
	countName := objectCountName("persistentvolumeclaims")
	names := []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}
	return &evaluator[*corev1.PersistentVolumeClaim]{
		resource: coreResource("persistentvolumeclaims"),
		counts: func(n corev1.ResourceName) bool {
			return n == countName || slices.Contains(names, n) || slices.ContainsFunc(names, func(r corev1.ResourceName) bool {
				return strings.HasSuffix(string(n), classInfix+string(r))
			})
		},
		usage: func(c *corev1.PersistentVolumeClaim) corev1.ResourceList {
			out := corev1.ResourceList{countName: quantity(1)}
			add := func(n corev1.ResourceName, q resource.Quantity) {
				out[n] = q
				if class := storageClass(c); class != "" {
					out[corev1.ResourceName(class+classInfix+string(n))] = q
				}
			}
			add(corev1.ResourcePersistentVolumeClaims, quantity(1))
			if q, ok := chargedStorage(c); ok {
				add(corev1.ResourceRequestsStorage, q)
			}
			return out
		},
		handles: func(a admission.Attributes) bool {
			switch a.GetSubresource() {
			case "":
				return a.GetOperation() == admission.Create || a.GetOperation() == admission.Update
			case "status":
				c, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
				old, ok2 := a.GetOldObject().(*corev1.PersistentVolumeClaim)
				return ok && ok2 && !equality.Semantic.DeepEqual(c.Status.AllocatedResources, old.Status.AllocatedResources)
			}
			return false
		},
		inScope: func(s corev1.ScopedResourceSelectorRequirement, c *corev1.PersistentVolumeClaim) (bool, error) {
			if s.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
				return false, nil
			}
			return attributesInScope(s, attributesClassNames(c))
		},
	}
}

// attributesClassNames returns the names of the VolumeAttributesClasses in a claim: the requested
// one, the current one, and the target of a modification in progress.
func attributesClassNames(c *corev1.PersistentVolumeClaim) []string {
	names := []string{ptr.Deref(c.Spec.VolumeAttributesClassName, ""),
		ptr.Deref(c.Status.CurrentVolumeAttributesClassName, "")}
	if m := c.Status.ModifyVolumeStatus; m != nil {
		names = append(names, m.TargetVolumeAttributesClassName)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "" })
}

// attributesInScope reports whether scope selector s matches any of the VolumeAttributesClasses.
func attributesInScope(s corev1.ScopedResourceSelectorRequirement, classes []string) (bool, error) {
	if s.Operator == corev1.ScopeSelectorOpExists {
		return len(classes) > 0, nil
	}
	if len(classes) == 0 {
		return selectorMatches(s, "")
	}
	for _, name := range classes {
		if ok, err := selectorMatches(s, name); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

func storageClass(c *corev1.PersistentVolumeClaim) string {
	if n, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return n
	}
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName
	}
	return ""
}

// chargedStorage returns the storage for which a claim is charged, rounded up to whole bytes. It is
// the requested storage, or the allocated storage if that is larger because of an expansion. It
// returns false if the claim requests no storage.
func chargedStorage(c *corev1.PersistentVolumeClaim) (resource.Quantity, bool) {
	q, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return q, false
	}
	if a, ok := c.Status.AllocatedResources[corev1.ResourceStorage]; ok && a.Cmp(q) > 0 {
		q = a
	}
	q = q.DeepCopy()
	q.RoundUp(0)
	return q, true
}
