// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

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
)

// errStaleSlices has a Service tried again when the cache has caught up.
var errStaleSlices = errors.New("the cache does not show the slices that were written last")

// stalePatience is how often in a row a cache may be behind before the server is
// asked. A cache that is merely late catches up within the first few retries.
const stalePatience = 4

// SliceView is what a controller sees of the EndpointSlices that are its own by
// label. It is never older than what the controller has written itself. The
// Tracker is to be told of each write; since its answer may come after the event
// of a foreign deletion, the tracker can wait for a slice that will not come back:
// after stalePatience looks the server says what there is. Safe for concurrent
// use, but each Service is to be looked at by one worker at a time, as a Loop does.
type SliceView struct {
	Tracker *endpointsliceutil.EndpointSliceTracker

	managedBy string
	slices    discoverylisters.EndpointSliceLister
	client    discoveryclient.EndpointSlicesGetter

	mu    sync.Mutex
	stale map[string]int // looks in a row at which the cache was behind, by Service
}

// NewSliceView returns the view of the slices with a managed-by label.
func NewSliceView(managedBy string, slices discoverylisters.EndpointSliceLister, client discoveryclient.EndpointSlicesGetter) *SliceView {
	return &SliceView{
		Tracker: endpointsliceutil.NewEndpointSliceTracker(), managedBy: managedBy,
		slices: slices, client: client, stale: map[string]int{},
	}
}

// Cached returns the slices of a Service that the cache has.
func (v *SliceView) Cached(namespace, service string) ([]*discoveryv1.EndpointSlice, error) {
	slices, err := v.slices.EndpointSlices(namespace).List(v.selector(service))
	if err != nil {
		return nil, fmt.Errorf("slices: %w", err)
	}
	return slices, nil
}

// Of returns the slices of a Service that are not about to go, or an error if
// the cache does not have all of the controller's own writes yet.
func (v *SliceView) Of(ctx context.Context, service *v1.Service) ([]*discoveryv1.EndpointSlice, error) {
	cached, err := v.Cached(service.Namespace, service.Name)
	if err != nil {
		return nil, err
	}
	kept := staying(cached)
	if !v.behind(Key(service), v.Tracker.StaleSlices(service, kept)) {
		return kept, nil
	}
	if !v.lost(Key(service)) {
		return nil, errStaleSlices
	}
	list, err := v.client.EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: v.selector(service.Name).String()})
	if err != nil {
		return nil, fmt.Errorf("slices: %w", err)
	}
	live := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		live[i] = &list.Items[i]
	}
	live = staying(live)
	v.Forget(service.Namespace, service.Name)
	for _, s := range live {
		v.Tracker.Update(s)
	}
	return live, nil
}

// behind counts the looks at which the cache was stale.
func (v *SliceView) behind(key string, stale bool) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if stale {
		v.stale[key]++
	} else {
		delete(v.stale, key)
	}
	return stale
}

func (v *SliceView) lost(key string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.stale[key] > stalePatience
}

// Forget lets go of all that is known about a Service.
func (v *SliceView) Forget(namespace, service string) {
	v.Tracker.DeleteService(namespace, service)
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.stale, namespace+"/"+service)
}

// Foreign returns the keys of the Services that have to be looked at since
// somebody else changed a slice. old and slice are as OnChange gives them.
func (v *SliceView) Foreign(old, slice *discoveryv1.EndpointSlice) []string {
	foreign := false
	switch {
	case slice == nil:
		foreign = v.mine(old) && !(v.Tracker.Has(old) && v.Tracker.HandleDeletion(old))
	case old == nil:
		foreign = v.mine(slice) && v.Tracker.ShouldSync(slice)
	default:
		foreign = v.mine(old) != v.mine(slice) || v.mine(slice) && (v.Tracker.ShouldSync(slice) || serviceOf(old) != serviceOf(slice))
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

func (v *SliceView) mine(s *discoveryv1.EndpointSlice) bool {
	return s.Labels[discoveryv1.LabelManagedBy] == v.managedBy
}

func (v *SliceView) selector(service string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: v.managedBy})
}

func serviceOf(s *discoveryv1.EndpointSlice) string { return s.Labels[discoveryv1.LabelServiceName] }

// staying are the slices that are not about to go: they are nobody's to change.
func staying(slices []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	kept := slices[:0:0]
	for _, s := range slices {
		if s.DeletionTimestamp == nil {
			kept = append(kept, s)
		}
	}
	return kept
}
