// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/utils/ptr"
)

// Devices is what claims of devices are seen in the light of.
type Devices struct {
	Classes resourcelisters.DeviceClassLister
	Pod     func(namespace, name string) (*corev1.Pod, error)
	Claims  func(namespace string) ([]*resourcev1.ResourceClaim, error)
}

// devices evaluates claims of devices: how many of each class they may come to
// have. They count as well for the extended resources that classes stand for, but
// for what is charged to the pod already that a claim was made for.
func devices(facts Devices, charged func(*corev1.Pod) corev1.ResourceList) *evaluator[*resourcev1.ResourceClaim] {
	gvr := resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
	countName := generic.ObjectCountQuotaResourceNameFor(gvr.GroupResource())
	return &evaluator[*resourcev1.ResourceClaim]{
		resource: gvr.GroupResource(),
		matching: func(n corev1.ResourceName) bool {
			return n == countName || strings.HasSuffix(string(n), corev1.ResourceClaimsPerClass) || facts.standFor(n)
		},
		usage: func(c *resourcev1.ResourceClaim) corev1.ResourceList {
			out, requests := corev1.ResourceList{countName: count(1)}, corev1.ResourceList{}
			for class, n := range devicesOf(c) {
				out[corev1.ResourceName(class+corev1.ResourceClaimsPerClass)] = count(n)
				requests[corev1.ResourceName(requestsPrefix+resourcev1.ResourceDeviceClassPrefix+class)] = count(n)
				if name := facts.nameOf(class); name != "" {
					requests[corev1.ResourceName(requestsPrefix+name)] = count(n)
				}
			}
			paid := corev1.ResourceList{}
			if pod := facts.owner(c); pod != nil {
				paid = charged(pod)
			}
			for name, n := range requests {
				n.Sub(paid[name])
				if n.Sign() > 0 {
					out[name] = n
				}
			}
			return out
		},
	}
}

// nameOf is the extended resource that a class stands for; "": none.
func (d Devices) nameOf(class string) string {
	c, err := d.Classes.Get(class)
	if err != nil {
		return "" // there is no such class
	}
	return ptr.Deref(c.Spec.ExtendedResourceName, "")
}

// standFor reports whether a name limits requests for what a class stands for.
func (d Devices) standFor(n corev1.ResourceName) bool {
	resource, ok := strings.CutPrefix(string(n), requestsPrefix)
	if !ok {
		return false
	}
	if class, implicit := strings.CutPrefix(resource, resourcev1.ResourceDeviceClassPrefix); implicit {
		_, err := d.Classes.Get(class)
		return err == nil
	}
	all, err := d.Classes.List(labels.Everything())
	return err == nil && slices.ContainsFunc(all, func(c *resourcev1.DeviceClass) bool {
		return ptr.Deref(c.Spec.ExtendedResourceName, "") == resource
	})
}

// owner is the pod for whose extended resources a claim was made. Only one claim
// is taken for that: the one that the pod names or, as long as it names none, the
// first. Anybody could say of more that they are.
func (d Devices) owner(c *resourcev1.ResourceClaim) *corev1.Pod {
	ref := madeFor(c)
	if ref == nil {
		return nil
	}
	pod, err := d.Pod(c.Namespace, ref.Name)
	if err != nil || pod.UID != ref.UID {
		return nil
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		if s.ResourceClaimName != c.Name {
			return nil
		}
		return pod
	}
	all, err := d.Claims(c.Namespace)
	if err != nil || slices.ContainsFunc(all, func(other *resourcev1.ResourceClaim) bool {
		o := madeFor(other)
		return o != nil && o.UID == ref.UID && other.UID != c.UID && before(other, c)
	}) {
		return nil
	}
	return pod
}

// madeFor names the pod for whose extended resources a claim says it was made.
func madeFor(c *resourcev1.ResourceClaim) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(c)
	if c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || ref == nil || ref.Kind != "Pod" || ref.APIVersion != "v1" {
		return nil
	}
	return ref
}

// before tells which of two claims came first. One that is about to be made has
// no time yet.
func before(a, b *resourcev1.ResourceClaim) bool {
	switch {
	case b.CreationTimestamp.IsZero():
		return true
	case a.CreationTimestamp.Equal(&b.CreationTimestamp):
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// devicesOf are the most devices of each class that a claim can get.
func devicesOf(c *resourcev1.ResourceClaim) map[string]int {
	out := map[string]int{}
	for i := range c.Spec.Devices.Requests {
		r := &c.Spec.Devices.Requests[i]
		if e := r.Exactly; e != nil {
			out[e.DeviceClassName] += mostDevices(e.AllocationMode, e.Count)
		}
		most := map[string]int{} // it gets one of these
		for j := range r.FirstAvailable {
			s := &r.FirstAvailable[j]
			most[s.DeviceClassName] = max(most[s.DeviceClassName], mostDevices(s.AllocationMode, s.Count))
		}
		for class, n := range most {
			out[class] += n
		}
	}
	return out
}

// mostDevices is how many devices a request can get; none if its mode is not known.
func mostDevices(mode resourcev1.DeviceAllocationMode, exact int64) int {
	switch mode {
	case resourcev1.DeviceAllocationModeExactCount:
		return int(exact)
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	}
	return 0
}
