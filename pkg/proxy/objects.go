// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/follow"
	"keelson.dev/keelson/pkg/proxy/service"
)

// objects caches the Services and EndpointSlices in a compact form, because a cluster can have very
// many of them. It notes the name of the affected service of each change in dirty.
type objects struct {
	dirty    *dirty
	services *follow.Cache[corev1.Service, service.Service]
	slices   *follow.Cache[discoveryv1.EndpointSlice, service.Slice]

	mu        sync.Mutex
	ofService map[types.NamespacedName][]*service.Slice // guarded by mu; a list is never modified, only replaced
}

func newObjects(node string, client kubernetes.Interface, d *dirty, c clock.Clock, log *slog.Logger) *objects {
	o := &objects{dirty: d, ofService: map[types.NamespacedName][]*service.Slice{}}
	o.services = follow.NewCache(follow.Config[corev1.Service, service.Service]{
		Source: follow.Source(client.CoreV1().Services(""),
			selectors("!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None")),
		Keep: service.New, Changed: o.serviceChanged, Clock: c, Log: log,
	})
	o.slices = follow.NewCache(follow.Config[discoveryv1.EndpointSlice, service.Slice]{
		Source: follow.Source(client.DiscoveryV1().EndpointSlices(""), selectors("!"+corev1.IsHeadlessService, "")),
		Keep: func(s *discoveryv1.EndpointSlice) *service.Slice {
			o.noteTrigger(s)
			return service.NewSlice(s, node)
		},
		Changed: o.sliceChanged, Clock: c, Log: log,
	})
	return o
}

func (o *objects) serviceChanged(name types.NamespacedName, _, _ *service.Service) {
	o.dirty.Note(func(b *batch) { b.services[name] = true; b.svcs++ })
}

// sliceChanged removes a slice from the service to which it belonged, and adds it to the service to
// which it belongs now.
func (o *objects) sliceChanged(_ types.NamespacedName, old, current *service.Slice) {
	o.mu.Lock()
	if old != nil {
		left := without(o.ofService[old.Service], old)
		if len(left) == 0 {
			delete(o.ofService, old.Service)
		} else {
			o.ofService[old.Service] = left
		}
	}
	if current != nil {
		o.ofService[current.Service] = append(slices.Clip(o.ofService[current.Service]), current)
	}
	o.mu.Unlock()
	o.dirty.Note(func(b *batch) {
		for _, s := range []*service.Slice{old, current} {
			if s != nil {
				b.services[s.Service] = true
			}
		}
		b.slices++
	})
}

func without(list []*service.Slice, s *service.Slice) []*service.Slice {
	out := make([]*service.Slice, 0, len(list))
	for _, e := range list {
		if e != s {
			out = append(out, e)
		}
	}
	return out
}

// noteTrigger records when the change of a slice's endpoints began. It ignores changes that began
// before this process.
func (o *objects) noteTrigger(s *discoveryv1.EndpointSlice) {
	at, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil || !at.After(o.dirty.since) {
		return
	}
	name := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
	o.dirty.Note(func(b *batch) {
		if have, ok := b.triggers[name]; !ok || at.Before(have) {
			b.triggers[name] = at
		}
	})
}

// get returns a service and its slices. The service is nil if it does not exist.
func (o *objects) get(name types.NamespacedName) (*service.Service, []*service.Slice) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.services.Get(name), o.ofService[name]
}
