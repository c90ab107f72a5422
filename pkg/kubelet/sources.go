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

// sources provides the node's pods. They come from the API and, for static pods, from files and a
// URL.
type sources struct {
	api    *apiCache
	static *static.Manager // nil if the configuration names no source of static pods
	// startup measures the starts of pods of the API.
	startup *startup
}

// newSources returns the sources of pods. It includes static pods if the configuration names a path
// or a URL for them.
func newSources(s *shared, api *apiCache, reflect func()) *sources {
	c := s.cfg.Kubelet
	if !hasStatic(s.cfg) {
		return &sources{api: api, startup: s.metrics.startup}
	}
	return &sources{api: api, startup: s.metrics.startup, static: static.New(static.Config{
		Path: c.StaticPodPath, Period: c.FileCheckFrequency.Duration,
		URL: c.StaticPodURL, Header: c.StaticPodURLHeader, URLPeriod: c.HTTPCheckFrequency.Duration,
		NodeName: s.cfg.NodeName, Client: s.cfg.Client, Node: s.node.Current, Seen: api.bound, Reflect: reflect,
		Restarted: func() { s.metrics.pods.Restarted(true) }, Clock: s.cfg.Clock, Log: s.cfg.Log,
	})}
}

func hasStatic(cfg Config) bool {
	return cfg.Kubelet.StaticPodPath != "" || cfg.Kubelet.StaticPodURL != ""
}

// mirrors returns a function that finds the mirror pod of a static pod in the API, or nil if the
// pod has none.
func mirrors(cfg Config, api *apiCache) func(*v1.Pod) *v1.Pod {
	if !hasStatic(cfg) {
		return func(*v1.Pod) *v1.Pod { return nil }
	}
	return func(pod *v1.Pod) *v1.Pod {
		seen, _ := api.bound()
		return static.Mirror(seen, pod)
	}
}

// podPool runs each pod that is passed to Set until the pod is passed to Remove.
type podPool interface {
	Set(pod *v1.Pod)
	Remove(uid types.UID)
}

// run passes all pods of the API to the pool. It returns when the pool has all existing pods; until
// ctx ends, changes are still passed to the pool.
func (s *sources) run(ctx context.Context, pool podPool) error {
	if err := s.api.run(ctx, withoutMirrors{pool, s.poke, s.startup}); err != nil {
		return err
	}
	s.poke()
	return nil
}

// listed reports whether the pool has the pods of all sources. Until then, a pod that the kubelet
// does not know may belong to the node, so the kubelet must neither end it nor release anything that
// it holds.
func (s *sources) listed() bool {
	return s.api.listed() && (s.static == nil || s.static.Synced())
}

// list lists the pods of the API again, at least as of a resourceVersion.
func (s *sources) list(ctx context.Context, version string) error { return s.api.list(ctx, version) }

// atLeast reports whether the pods of all sources are known, those of the API as of a resourceVersion.
func (s *sources) atLeast(version string) bool { return s.listed() && s.api.pods.AtLeast(version) }

// poke makes the manager of static pods compare its pods with their mirror pods again.
func (s *sources) poke() {
	if s.static != nil {
		s.static.Poke()
	}
}

// all returns the node's pods, as the kubelet last read them from the API, files and the URL. It
// leaves out mirror pods.
func (s *sources) all() []*v1.Pod {
	list, _ := s.api.bound()
	list = slices.DeleteFunc(list, source.Mirror)
	if s.static != nil {
		list = append(list, s.static.Pods()...)
	}
	return list
}

// live returns the node's pods that have not ended, according to the status last read from the API.
func (s *sources) live() []*v1.Pod { return slices.DeleteFunc(s.all(), ended) }

// ended reports whether the pod has ended according to its phase.
func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded
}

// named returns the node's pod with this namespace and name, or nil if there is none. It ignores
// mirror pods.
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

// withoutMirrors passes changes of pods to the pool, except those of mirror pods. For these it only
// calls changed, which wakes the manager of static pods. It passes all changes to startup.
type withoutMirrors struct {
	pool    podPool
	changed func()
	startup *startup
}

// change handles a change of the pod of one name. old and current may be different pods, because
// the watch may miss that a pod was deleted and another one of the same name was created.
func (w withoutMirrors) change(old, current *v1.Pod) {
	if old != nil && (current == nil || current.UID != old.UID) {
		w.startup.forget(old.UID)
		if !w.mirror(old) {
			w.pool.Remove(old.UID)
		}
	}
	if current != nil {
		w.startup.observe(current)
		if !w.mirror(current) {
			w.pool.Set(current)
		}
	}
}

// mirror reports whether the pod is a mirror pod. If so, it wakes the manager of static pods.
func (w withoutMirrors) mirror(pod *v1.Pod) bool {
	if !source.Mirror(pod) {
		return false
	}
	w.changed()
	return true
}
