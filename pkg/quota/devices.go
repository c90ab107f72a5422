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

// DeviceSources return the objects from which the usage of a ResourceClaim is computed.
type DeviceSources struct {
	Classes resourcelisters.DeviceClassLister
	Pod     func(namespace, name string) (*corev1.Pod, error)
	Claims  func(namespace string) ([]*resourcev1.ResourceClaim, error)
}

// newDeviceClaimEvaluator returns the evaluator of ResourceClaims, which request devices. A claim
// is charged for the maximum number of devices of each class that it can get. Each device is also
// charged to the extended resource that its class provides. If a claim was created for the extended
// resources of a pod, the pod has already been charged under the names of requests. Under these names,
// such a claim is charged only for devices beyond those of the pod.
func newDeviceClaimEvaluator(facts DeviceSources,
	charged func(*corev1.Pod) corev1.ResourceList) *evaluator[*resourcev1.ResourceClaim] {
	gvr := resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
	countName := generic.ObjectCountQuotaResourceNameFor(gvr.GroupResource())
	return &evaluator[*resourcev1.ResourceClaim]{
		resource: gvr.GroupResource(),
		counts: func(n corev1.ResourceName) bool {
			return n == countName || strings.HasSuffix(string(n), corev1.ResourceClaimsPerClass) || facts.limitsRequests(n)
		},
		usage: func(c *resourcev1.ResourceClaim) corev1.ResourceList {
			out, requests := corev1.ResourceList{countName: quantity(1)}, corev1.ResourceList{}
			for class, n := range maxDevicesPerClass(c) {
				out[corev1.ResourceName(class+corev1.ResourceClaimsPerClass)] = quantity(n)
				requests[corev1.ResourceName(requestsPrefix+resourcev1.ResourceDeviceClassPrefix+class)] = quantity(n)
				if name := facts.extendedResource(class); name != "" {
					requests[corev1.ResourceName(requestsPrefix+name)] = quantity(n)
				}
			}
			paid := corev1.ResourceList{}
			if pod := facts.chargedPod(c); pod != nil {
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

// extendedResource returns the name of the extended resource that a class provides, or "".
func (d DeviceSources) extendedResource(class string) string {
	c, err := d.Classes.Get(class)
	if err != nil {
		return "" // the class does not exist; no other error is possible
	}
	return ptr.Deref(c.Spec.ExtendedResourceName, "")
}

// limitsRequests reports whether n is the quota name for requests of devices: of a class that
// exists, or of an extended resource that a class provides.
func (d DeviceSources) limitsRequests(n corev1.ResourceName) bool {
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

// chargedPod returns the pod for whose extended resources a claim was created, or nil. Each pod has
// only one such claim: the one that its status names or, as long as it names none, the oldest.
// Without this limit, a user could create further claims that refer to the pod and are not charged.
func (d DeviceSources) chargedPod(c *resourcev1.ResourceClaim) *corev1.Pod {
	ref := extendedResourceOwner(c)
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
		o := extendedResourceOwner(other)
		return o != nil && o.UID == ref.UID && other.UID != c.UID && createdBefore(other, c)
	}) {
		return nil
	}
	return pod
}

// extendedResourceOwner returns a claim's owner reference to a pod if, according to its annotation,
// the claim was created for the extended resources of this pod. Otherwise it returns nil.
func extendedResourceOwner(c *resourcev1.ResourceClaim) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(c)
	if c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || ref == nil || ref.Kind != "Pod" ||
		ref.APIVersion != "v1" {
		return nil
	}
	return ref
}

// createdBefore reports whether claim a was created before claim b. A claim without a creation time
// is just being created, so it is the newest.
func createdBefore(a, b *resourcev1.ResourceClaim) bool {
	switch {
	case b.CreationTimestamp.IsZero():
		return true
	case a.CreationTimestamp.Equal(&b.CreationTimestamp):
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// maxDevicesPerClass returns the maximum number of devices of each class that a claim can get.
func maxDevicesPerClass(c *resourcev1.ResourceClaim) map[string]int {
	out := map[string]int{}
	for i := range c.Spec.Devices.Requests {
		r := &c.Spec.Devices.Requests[i]
		if e := r.Exactly; e != nil {
			out[e.DeviceClassName] += maxDevices(e.AllocationMode, e.Count)
		}
		most := map[string]int{} // by class; the request gets only one of the alternatives
		for j := range r.FirstAvailable {
			s := &r.FirstAvailable[j]
			most[s.DeviceClassName] = max(most[s.DeviceClassName], maxDevices(s.AllocationMode, s.Count))
		}
		for class, n := range most {
			out[class] += n
		}
	}
	return out
}

// maxDevices returns the maximum number of devices that a request can get. It returns 0 for an
// unknown allocation mode.
func maxDevices(mode resourcev1.DeviceAllocationMode, exact int64) int {
	switch mode {
	case resourcev1.DeviceAllocationModeExactCount:
		return int(exact)
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	}
	return 0
}
