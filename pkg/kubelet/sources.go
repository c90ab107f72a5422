// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson.dev/keelson/pkg/kubelet/source"
	"keelson.dev/keelson/pkg/kubelet/static"
)

// sources are where the node's pods come from: the API and, for static pods, files and a URL.
type sources struct {
	api    *apiCache
	static *static.Manager // nil if there are no static pods
}

// newSources reads static pods if the configuration names a path or a URL.
func newSources(s *shared, api *apiCache, reflect func()) *sources {
	c := s.cfg.Kubelet
	if !hasStatic(s.cfg) {
		return &sources{api: api}
	}
	return &sources{api: api, static: static.New(static.Config{
		Path: c.StaticPodPath, Period: c.FileCheckFrequency.Duration,
		URL: c.StaticPodURL, Header: c.StaticPodURLHeader, URLPeriod: c.HTTPCheckFrequency.Duration,
		NodeName: s.cfg.NodeName, Client: s.cfg.Client, Node: s.node.Current, Seen: api.bound, Reflect: reflect,
		Restarted: func() { s.metrics.pods.Restarted(true) }, Clock: s.cfg.Clock, Log: s.cfg.Log,
	})}
}

func hasStatic(cfg Config) bool {
	return cfg.Kubelet.StaticPodPath != "" || cfg.Kubelet.StaticPodURL != ""
}

// mirrors returns a function that finds the pod of the API that mirrors a static pod.
func mirrors(cfg Config, api *apiCache) func(*v1.Pod) *v1.Pod {
	if !hasStatic(cfg) {
		return func(*v1.Pod) *v1.Pod { return nil }
	}
	return func(pod *v1.Pod) *v1.Pod {
		seen, _ := api.bound()
		return static.Mirror(seen, pod)
	}
}

// podPool runs pods.
type podPool interface {
	Set(pod *v1.Pod)
	Remove(uid types.UID)
}

// run passes all pods of the API to the pool. It returns when the pool has all existing pods, and
// then passes changes to the pool until ctx ends.
func (s *sources) run(ctx context.Context, pool podPool) error {
	if err := s.api.run(ctx, withoutMirrors{pool, s.poke}); err != nil {
		return err
	}
	s.poke()
	return nil
}

// poke makes the manager of static pods check pods and mirrors again.
func (s *sources) poke() {
	if s.static != nil {
		s.static.Poke()
	}
}

// all returns the node's pods, as they were last read from the API and from files.
func (s *sources) all() []*v1.Pod {
	list, _ := s.api.bound()
	list = slices.DeleteFunc(list, source.Mirror)
	if s.static != nil {
		list = append(list, s.static.Pods()...)
	}
	return list
}

// live returns the node's pods that have not ended according to the API.
func (s *sources) live() []*v1.Pod { return slices.DeleteFunc(s.all(), ended) }

// ended reports whether a pod has ended.
func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded
}

// named returns a pod of the node by its name, or nil.
func (s *sources) named(namespace, name string) *v1.Pod {
	if pod := s.api.named(namespace, name); pod != nil && !source.Mirror(pod) {
		return pod
	}
	if s.static != nil {
		for _, pod := range s.static.Pods() {
			if pod.Namespace == namespace && pod.Name == name {
				return pod
			}
		}
	}
	return nil
}

// withoutMirrors passes on all pods except mirrors, which concern only the manager of static pods.
type withoutMirrors struct {
	pool    podPool
	changed func()
}

// change passes on a change of a pod. A pod can be replaced by one of the same name while the watch
// is interrupted.
func (w withoutMirrors) change(old, current *v1.Pod) {
	if old != nil && (current == nil || current.UID != old.UID) && !w.mirror(old) {
		w.pool.Remove(old.UID)
	}
	if current != nil && !w.mirror(current) {
		w.pool.Set(current)
	}
}

// mirror reports whether a pod is a mirror, and announces the change of one.
func (w withoutMirrors) mirror(pod *v1.Pod) bool {
	if !source.Mirror(pod) {
		return false
	}
	w.changed()
	return true
}
