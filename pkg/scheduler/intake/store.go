// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Store keeps the pods that a server shows, and tells of each change before it
// takes the next: nothing piles up in between, a server that is ahead waits.
type Store struct {
	source cache.ListerWatcher
	set    func(old, pod *v1.Pod)
	gone   func(pod *v1.Pod)

	mu     sync.RWMutex
	pods   map[types.NamespacedName]*v1.Pod
	synced bool
}

var _ cache.ReflectorStore = (*Store)(nil)

// NewStore returns a store of what a source lists and watches. It tells nobody
// before Tell is called.
func NewStore(source cache.ListerWatcher) *Store {
	return &Store{source: source, pods: map[types.NamespacedName]*v1.Pod{}, set: func(*v1.Pod, *v1.Pod) {}, gone: func(*v1.Pod) {}}
}

// Tell has set called with each pod that comes or changes, old being nil or what
// it was before, and gone with each that goes. It is to be called before Run.
func (s *Store) Tell(set func(old, pod *v1.Pod), gone func(pod *v1.Pod)) { s.set, s.gone = set, gone }

// Run follows the source until ctx ends.
func (s *Store) Run(ctx context.Context) {
	cache.NewReflectorWithOptions(s.source, &v1.Pod{}, s, cache.ReflectorOptions{}).RunWithContext(ctx)
}

// HasSynced tells whether all pods that there were at the start have been told of.
func (s *Store) HasSynced() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.synced
}

// Get returns a pod, or nil.
func (s *Store) Get(namespace, name string) *v1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.pods[types.NamespacedName{Namespace: namespace, Name: name}]
}

// Add implements cache.ReflectorStore.
func (s *Store) Add(obj any) error {
	pod, err := podIn(obj)
	if err != nil {
		return err
	}
	s.put(pod)
	return nil
}

// Update implements cache.ReflectorStore.
func (s *Store) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.ReflectorStore.
func (s *Store) Delete(obj any) error {
	pod, err := podIn(obj)
	if err != nil {
		return err
	}
	s.drop(pod)
	return nil
}

// Replace implements cache.ReflectorStore: pods that are not listed are gone.
func (s *Store) Replace(list []any, _ string) error {
	listed := make(map[types.NamespacedName]struct{}, len(list))
	for _, obj := range list {
		pod, err := podIn(obj)
		if err != nil {
			return err
		}
		listed[nameOf(pod)] = struct{}{}
		s.put(pod)
	}
	for _, pod := range s.without(listed) {
		s.drop(pod)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
	return nil
}

// Resync implements cache.ReflectorStore.
func (*Store) Resync() error { return nil }

func (s *Store) put(pod *v1.Pod) {
	key := nameOf(pod)
	s.mu.Lock()
	old := s.pods[key]
	s.pods[key] = pod
	s.mu.Unlock()
	if old != nil && old.UID != pod.UID {
		s.gone(old) // another of the same name has come between two lists
		old = nil
	}
	s.set(old, pod)
}

func (s *Store) drop(pod *v1.Pod) {
	s.mu.Lock()
	delete(s.pods, nameOf(pod))
	s.mu.Unlock()
	s.gone(pod)
}

// without returns the pods that are kept and not listed.
func (s *Store) without(listed map[types.NamespacedName]struct{}) []*v1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []*v1.Pod
	for key, pod := range s.pods {
		if _, ok := listed[key]; !ok {
			out = append(out, pod)
		}
	}
	return out
}

func nameOf(pod *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// podIn is the pod that was read, without what is large and never looked at.
func podIn(obj any) (*v1.Pod, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return nil, fmt.Errorf("%T where pods are watched", obj)
	}
	pod.ManagedFields = nil
	return pod, nil
}
