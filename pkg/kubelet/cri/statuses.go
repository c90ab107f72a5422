// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"maps"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// statuses caches the statuses of ready sandboxes and of containers that are running or have
// exited. A cached status is valid as long as the runtime lists the sandbox or container in the
// same state: in these states, only a container's resource limits can change, and only this client
// changes them.
//
// The cache saves time because containerd decodes the container's whole specification for each
// status, whereas listing is cheap. The method retain drops statuses of sandboxes and containers
// that no longer exist. The cache is safe for concurrent use.
type statuses struct {
	mu         sync.Mutex
	sandboxes  map[string]Sandbox
	containers map[string]cachedContainer
	// changes counts the events that invalidate cached statuses. A status is not cached if such an
	// event happened between the request for the status and its arrival.
	changes uint64
}

// cachedContainer is a container's status, together with the state for which the status is valid.
type cachedContainer struct {
	Container
	state runtimeapi.ContainerState
}

// sandbox returns the cached status of a sandbox in a list, and whether the status is cached and
// valid. The last result is the current value of changes; the caller passes it to keepSandbox when
// it has read the status.
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

// container returns the cached status of a container in a list, and whether the status is cached
// and valid. The last result is the current value of changes; the caller passes it to keepContainer
// when it has read the status.
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

// changed drops the status of a container whose limits may have changed.
func (s *statuses) changed(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	delete(s.containers, id)
}

// reset drops all statuses, because the client has connected to the runtime again and another
// runtime may answer.
func (s *statuses) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	clear(s.sandboxes)
	clear(s.containers)
}

// retain drops the statuses of sandboxes and containers that no longer exist. The arguments list
// all that exist.
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
