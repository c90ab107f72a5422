// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
)

// Family returns the IP family of a range.
func Family(r netip.Prefix) corev1.IPFamily {
	if r.Addr().Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// Follow returns two functions that read informers. The result known reports whether an IPAddress
// with a name exists. ranges returns the ranges of a family: those of ServiceCIDR objects that are
// ready and not being deleted. The configured ranges count only as part of the default ServiceCIDR
// object, so that an administrator can delete it to move services to other ranges.
func Follow(informers networkinginformers.Interface) (known func(name string) bool,
	ranges func(corev1.IPFamily) []netip.Prefix) {
	addresses := informers.IPAddresses().Informer().GetIndexer()
	known = func(name string) bool {
		_, ok, err := addresses.GetByKey(name)
		return ok && err == nil
	}
	informers.ServiceCIDRs().Informer()
	lister := informers.ServiceCIDRs().Lister()
	ranges = func(family corev1.IPFamily) []netip.Prefix {
		var out []netip.Prefix
		add := func(r netip.Prefix) {
			if Family(r) == family && !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
		objects, err := lister.List(labels.Everything())
		if err != nil {
			return out
		}
		slices.SortFunc(objects, func(a, b *networkingv1.ServiceCIDR) int {
			return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		})
		for _, o := range objects {
			if o.DeletionTimestamp != nil || !ready(o) {
				continue
			}
			for _, s := range o.Spec.CIDRs {
				if r, err := netip.ParsePrefix(s); err == nil {
					add(r.Masked())
				}
			}
		}
		return out
	}
	return known, ranges
}

// ready reports whether services can have addresses in a ServiceCIDR. As in Kubernetes, this does not
// depend on the controller that writes the condition Ready.
func ready(o *networkingv1.ServiceCIDR) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	return c == nil || c.Status == metav1.ConditionTrue
}
