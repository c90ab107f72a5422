// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"
	"errors"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	endpointsliceutil "k8s.io/endpointslice/util"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// errStaleSlices is the error of a sync that cannot be done yet because the cache lags. The queue
// retries the Service later.
var errStaleSlices = errors.New("the cache does not show the slices that were written last")

// maxStaleReads is the number of stale reads in a row after which sliceView.current lists the slices
// from the API server. A cache that only lags catches up during the first few retries.
const maxStaleReads = 4

// sliceView reads the EndpointSlices that a controller manages, which it finds by label. It never
// returns slices that are older than the controller's own writes: the controller reports each write
// to the tracker.
//
// If another client deletes a slice, the deletion event may arrive before the response to the
// controller's own write of that slice. The tracker then expects the cache to show a slice that no
// longer exists. Therefore the method current lists from the API server after maxStaleReads stale
// reads.
//
// A sliceView is safe for concurrent use, but only one worker at a time may sync a Service, as a
// controller.Queue ensures.
type sliceView struct {
	tracker *endpointsliceutil.EndpointSliceTracker

	managedBy string
	slices    discoverylisters.EndpointSliceLister
	client    discoveryclient.EndpointSlicesGetter

	mu    sync.Mutex
	stale map[string]int // number of stale reads in a row, by key of the Service
}

// newSliceView returns a view of the slices whose label endpointslice.kubernetes.io/managed-by has
// the value managedBy.
func newSliceView(
	managedBy string, slices discoverylisters.EndpointSliceLister, client discoveryclient.EndpointSlicesGetter,
) *sliceView {
	return &sliceView{
		tracker: endpointsliceutil.NewEndpointSliceTracker(), managedBy: managedBy,
		slices: slices, client: client, stale: map[string]int{},
	}
}

// cached returns the EndpointSlices of a Service in the informer's cache.
func (v *sliceView) cached(namespace, service string) ([]*discoveryv1.EndpointSlice, error) {
	slices, err := v.slices.EndpointSlices(namespace).List(v.selector(service))
	if err != nil {
		return nil, fmt.Errorf("slices: %w", err)
	}
	return slices, nil
}

// current returns the slices of a Service that are not being deleted. It returns errStaleSlices if
// the cache does not show all of the controller's own writes yet. After more than maxStaleReads
// such errors in a row it lists the slices from the API server instead.
func (v *sliceView) current(ctx context.Context, service *v1.Service) ([]*discoveryv1.EndpointSlice, error) {
	cached, err := v.cached(service.Namespace, service.Name)
	if err != nil {
		return nil, err
	}
	kept := withoutTerminating(cached)
	if !v.countStale(controller.Key(service), v.tracker.StaleSlices(service, kept)) {
		return kept, nil
	}
	if !v.staleTooLong(controller.Key(service)) {
		return nil, errStaleSlices
	}
	options := metav1.ListOptions{LabelSelector: v.selector(service.Name).String()}
	list, err := v.client.EndpointSlices(service.Namespace).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("slices: %w", err)
	}
	live := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		live[i] = &list.Items[i]
	}
	live = withoutTerminating(live)
	v.forget(service.Namespace, service.Name)
	for _, s := range live {
		v.tracker.Update(s)
	}
	return live, nil
}

// countStale counts the stale reads in a row for a Service and returns its argument stale. A read
// that is not stale resets the count.
func (v *sliceView) countStale(key string, stale bool) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if stale {
		v.stale[key]++
	} else {
		delete(v.stale, key)
	}
	return stale
}

func (v *sliceView) staleTooLong(key string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.stale[key] > maxStaleReads
}

// forget drops the recorded writes and the count of stale reads of a Service.
func (v *sliceView) forget(namespace, service string) {
	v.tracker.DeleteService(namespace, service)
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.stale, namespace+"/"+service)
}

// affectedServices returns the keys of the Services that must be synced because a client other than
// the controller changed a slice. The arguments are those of an OnChange handler: old is nil if the
// slice was added, slice is nil if it was deleted.
func (v *sliceView) affectedServices(old, slice *discoveryv1.EndpointSlice) []string {
	foreign := false
	switch {
	case slice == nil:
		foreign = v.isManaged(old) && !(v.tracker.Has(old) && v.tracker.HandleDeletion(old))
	case old == nil:
		foreign = v.isManaged(slice) && v.tracker.ShouldSync(slice)
	default:
		foreign = v.isManaged(old) != v.isManaged(slice) ||
			v.isManaged(slice) && (v.tracker.ShouldSync(slice) || serviceOf(old) != serviceOf(slice))
	}
	if !foreign {
		return nil
	}
	var keys []string
	for _, s := range []*discoveryv1.EndpointSlice{old, slice} {
		if s != nil && serviceOf(s) != "" {
			keys = append(keys, s.Namespace+"/"+serviceOf(s))
		}
	}
	return keys
}

func (v *sliceView) isManaged(s *discoveryv1.EndpointSlice) bool {
	return s.Labels[discoveryv1.LabelManagedBy] == v.managedBy
}

func (v *sliceView) selector(service string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service,
		discoveryv1.LabelManagedBy: v.managedBy})
}

func serviceOf(s *discoveryv1.EndpointSlice) string { return s.Labels[discoveryv1.LabelServiceName] }

// withoutTerminating returns the slices that are not being deleted. The controller must not change
// slices that are being deleted.
func withoutTerminating(slices []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	kept := slices[:0:0]
	for _, s := range slices {
		if s.DeletionTimestamp == nil {
			kept = append(kept, s)
		}
	}
	return kept
}
