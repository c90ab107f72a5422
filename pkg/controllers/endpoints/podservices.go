// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	endpointsliceutil "k8s.io/endpointslice/util"
)

// servicesOf returns the keys of the Services whose endpoints a change of a pod may affect. They select
// the pod now or selected it before the change. The arguments are those of an OnChange handler: old is
// nil if the pod was added, pod is nil if it was deleted.
func servicesOf(services corelisters.ServiceLister, old, pod *v1.Pod) sets.Set[string] {
	if old != nil && pod != nil && old.UID != pod.UID {
		// The pod was deleted and another one of the same name was created, but the informer reports
		// only one update. The endpoints name the UID of their pod, so they change even if the two
		// pods have the same labels and addresses.
		return servicesOf(services, old, nil).Union(servicesOf(services, nil, pod))
	}
	var before, after any // the library takes a nil pointer in an interface for a pod
	if old != nil {
		before = old
	}
	if pod != nil {
		after = pod
	}
	change := endpointsliceutil.GetPodUpdateProjectionKey(before, after) // nil if no endpoint may change
	keys, err := endpointsliceutil.GetServicesToUpdate(services, change)
	if err != nil {
		return nil // cannot happen: the lister of a cache returns no error
	}
	return keys
}
