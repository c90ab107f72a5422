// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"maps"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// statuses keeps what the runtime told of sandboxes that are ready and of containers that run or
// have ended, for as long as its lists have them in that state: what a status tells beyond is
// settled by then, but for a container's limits, which only this client changes. A list is
// cheap, while containerd decodes a container's whole specification for each status. What is not
// listed any more is dropped when all is listed. Safe for concurrent use.
type statuses struct {
	mu         sync.Mutex
	sandboxes  map[string]Sandbox
	containers map[string]settled
	// changes counts what made kept statuses untrue: a status that was asked for before is not kept after.
	changes uint64
}

// settled is a container as it was told in a state.
type settled struct {
	Container
	state runtimeapi.ContainerState
}

// sandbox returns what is known of a listed sandbox, and the number to keep what is asked for otherwise with.
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

// container returns what is known of a listed container, and the number to keep what is asked
// for otherwise with.
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
		s.containers = map[string]settled{}
	}
	s.containers[c.ID] = settled{c, state}
}

// changed forgets a container whose limits may be others now.
func (s *statuses) changed(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	delete(s.containers, id)
}

// reset forgets all: another runtime may answer.
func (s *statuses) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	clear(s.sandboxes)
	clear(s.containers)
}

// retain forgets what a list of everything does not have.
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
	maps.DeleteFunc(s.containers, func(id string, _ settled) bool { return !there[id] })
}
