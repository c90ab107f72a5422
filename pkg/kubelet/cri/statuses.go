// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"maps"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// statuses caches the statuses of ready sandboxes and of containers that run or have ended. An
// entry is valid as long as the runtime lists the sandbox or container in that state, because
// nothing else in its status changes then, except a container's limits, which only this client
// changes. Listing is cheap, whereas containerd decodes a container's whole specification for each
// status. A list of everything drops the entries that it does not contain. It is safe for
// concurrent use.
type statuses struct {
	mu         sync.Mutex
	sandboxes  map[string]Sandbox
	containers map[string]cachedContainer
	// changes counts the events that made entries invalid. A status that was requested before such
	// an event and arrives after it is not stored.
	changes uint64
}

// cachedContainer is a container's status with the state for which it is valid.
type cachedContainer struct {
	Container
	state runtimeapi.ContainerState
}

// sandbox returns the cached status of a listed sandbox. If there is none, it returns the value of
// changes, which the caller passes when it stores the status that it then reads.
func (s *statuses) sandbox(item *runtimeapi.PodSandbox) (Sandbox, bool, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.sandboxes[item.GetId()]
	return b, ok && item.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY, s.changes
}

func (s *statuses) keepSandbox(b Sandbox, asked uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !b.Ready || s.changes != asked {
		return
	}
	if s.sandboxes == nil {
		s.sandboxes = map[string]Sandbox{}
	}
	s.sandboxes[b.ID] = b
}

// container returns the cached status of a listed container. If there is none, it returns the value
// of changes, which the caller passes when it stores the status that it then reads.
func (s *statuses) container(item *runtimeapi.Container) (Container, bool, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.containers[item.GetId()]
	return k.Container, ok && k.state == item.GetState(), s.changes
}

func (s *statuses) keepContainer(c Container, state runtimeapi.ContainerState, asked uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lasts := state == runtimeapi.ContainerState_CONTAINER_RUNNING || state == runtimeapi.ContainerState_CONTAINER_EXITED
	if !lasts || s.changes != asked {
		return
	}
	if s.containers == nil {
		s.containers = map[string]cachedContainer{}
	}
	s.containers[c.ID] = cachedContainer{c, state}
}

// changed drops a container whose limits may have changed.
func (s *statuses) changed(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	delete(s.containers, id)
}

// reset drops everything, because another runtime may answer from now on.
func (s *statuses) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	clear(s.sandboxes)
	clear(s.containers)
}

// retain drops everything that a list of all sandboxes and containers does not contain.
func (s *statuses) retain(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) {
	there := make(map[string]bool, len(sandboxes)+len(containers))
	for _, b := range sandboxes {
		there[b.GetId()] = true
	}
	for _, c := range containers {
		there[c.GetId()] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.sandboxes, func(id string, _ Sandbox) bool { return !there[id] })
	maps.DeleteFunc(s.containers, func(id string, _ cachedContainer) bool { return !there[id] })
}
