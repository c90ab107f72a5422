// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/proxy/service"
)

// objects are the Services and EndpointSlices, of which there may be very many, in the
// form that decisions take. Each change of them is noted under the name of the service.
type objects struct {
	dirty    *dirty
	services *follower[corev1.Service, *service.Service]
	slices   *follower[discoveryv1.EndpointSlice, *service.Slice]

	mu     sync.Mutex
	known  map[types.NamespacedName]*known         // guarded by mu, by service
	owners map[types.NamespacedName]*service.Slice // guarded by mu, by name of the slice
}

// known is what there is of one service; not both are missing.
type known struct {
	service *service.Service
	slices  []*service.Slice // replaced, not changed
}

func newObjects(node string, d *dirty) *objects {
	o := &objects{dirty: d, known: map[types.NamespacedName]*known{}, owners: map[types.NamespacedName]*service.Slice{}}
	o.services = newFollower(service.New, o.putService, o.names)
	o.slices = newFollower(func(s *discoveryv1.EndpointSlice) *service.Slice {
		o.noteTrigger(s)
		return service.NewSlice(s, node)
	}, o.putSlice, o.sliceNames)
	return o
}

// listed returns when there has been a first list of both kinds; false if ctx ended before.
func (o *objects) listed(ctx context.Context) bool {
	for _, c := range []chan struct{}{o.services.listed, o.slices.listed} {
		select {
		case <-ctx.Done():
			return false
		case <-c:
		}
	}
	return true
}

func (o *objects) putService(name types.NamespacedName, s *service.Service) {
	o.mu.Lock()
	k := o.known[name]
	if k == nil {
		k = &known{}
		o.known[name] = k
	}
	k.service = s
	o.forget(name)
	o.mu.Unlock()
	o.dirty.note(func(b *batch) { b.services[name] = true; b.svcs++ })
}

// forget drops a service of which nothing is left; mu is held.
func (o *objects) forget(name types.NamespacedName) {
	if k := o.known[name]; k.service == nil && len(k.slices) == 0 {
		delete(o.known, name)
	}
}

func (o *objects) putSlice(name types.NamespacedName, s *service.Slice) {
	o.mu.Lock()
	old := o.owners[name]
	if old != nil {
		delete(o.owners, name)
		k := o.known[old.Service]
		k.slices = without(k.slices, old)
	}
	if s != nil {
		o.owners[name] = s
		k := o.known[s.Service]
		if k == nil {
			k = &known{}
			o.known[s.Service] = k
		}
		k.slices = append(slices.Clip(k.slices), s)
	}
	if old != nil {
		o.forget(old.Service)
	}
	o.mu.Unlock()
	o.dirty.note(func(b *batch) {
		for _, s := range []*service.Slice{old, s} {
			if s != nil {
				b.services[s.Service] = true
				b.slices++
			}
		}
	})
}

func without(list []*service.Slice, s *service.Slice) []*service.Slice {
	out := make([]*service.Slice, 0, len(list)) // with room for what comes in its place
	for _, e := range list {
		if e != s {
			out = append(out, e)
		}
	}
	return out
}

// noteTrigger notes when the change of a slice's endpoints began, unless that was before
// this process.
func (o *objects) noteTrigger(s *discoveryv1.EndpointSlice) {
	at, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil || !at.After(o.dirty.since) {
		return
	}
	name := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
	o.dirty.note(func(b *batch) {
		if have, ok := b.triggers[name]; !ok || at.Before(have) {
			b.triggers[name] = at
		}
	})
}

// get returns a service, nil if there is none, and its slices.
func (o *objects) get(name types.NamespacedName) (*service.Service, []*service.Slice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if k := o.known[name]; k != nil {
		return k.service, k.slices
	}
	return nil, nil
}

// names are those of all services.
func (o *objects) names() []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []types.NamespacedName
	for name, k := range o.known {
		if k.service != nil {
			out = append(out, name)
		}
	}
	return out
}

func (o *objects) sliceNames() []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.owners))
}
