// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxShared is how many different parts of pods are known at a time. When there
// are more, all are forgotten: pods keep what they have, and those that come
// later share anew.
const maxShared = 1 << 14

// sharer has pods share what they have in common: those of one controller differ
// in little, and a cell has very many pods. Nobody may change what a cache holds
// in any case.
type sharer struct {
	mu    sync.Mutex
	known map[string]any
	key   []byte
}

func newSharer() *sharer { return &sharer{known: map[string]any{}} }

// shared returns the part that is known under the key in s.key, or makes own
// known under it. s.mu is held.
func shared[T any](s *sharer, own T) T {
	if known, ok := s.known[string(s.key)].(T); ok {
		return known
	}
	if len(s.known) >= maxShared {
		clear(s.known)
	}
	s.known[string(s.key)] = own
	return own
}

// share replaces parts of a pod by those that another pod has.
func (s *sharer) share(p *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Namespace, p.Spec.NodeName = s.word(p.Namespace), s.word(p.Spec.NodeName)
	p.Labels, p.OwnerReferences = s.labels(p.Labels), s.owners(p.OwnerReferences)
	s.spec(&p.Spec)
}

func (s *sharer) word(w string) string {
	s.key = append(append(s.key[:0], 'w'), w...)
	return shared(s, w)
}

// add adds a word to the key, so that no other words make the same key.
func (s *sharer) add(w string) {
	s.key = binary.AppendUvarint(s.key, uint64(len(w)))
	s.key = append(s.key, w...)
}

func (s *sharer) labels(l map[string]string) map[string]string {
	if len(l) == 0 {
		return nil
	}
	s.key = append(s.key[:0], 'l')
	for _, name := range slices.Sorted(maps.Keys(l)) {
		s.add(name)
		s.add(l[name])
	}
	return shared(s, l)
}

func (s *sharer) owners(refs []metav1.OwnerReference) []metav1.OwnerReference {
	if len(refs) == 0 {
		return nil
	}
	s.key = append(s.key[:0], 'o')
	for i := range refs {
		enc, err := refs[i].Marshal()
		if err != nil {
			return refs // they stay the pod's own
		}
		s.add(string(enc))
	}
	return shared(s, refs)
}

// spec shares all but what names the pod's own node, host name and volumes.
func (s *sharer) spec(spec *v1.PodSpec) {
	own := *spec
	spec.NodeName, spec.Hostname = "", ""
	if slices.ContainsFunc(own.Volumes, func(v v1.Volume) bool { return v.PersistentVolumeClaim != nil }) {
		spec.Volumes = nil
	}
	s.key = append(s.key[:0], 's')
	start, size := len(s.key), spec.Size()
	s.key = slices.Grow(s.key, size)[:start+size]
	if _, err := spec.MarshalToSizedBuffer(s.key[start:]); err != nil {
		*spec = own // it stays the pod's own
		return
	}
	of := shared(s, spec)
	if of == spec {
		kept := *spec // the pod's own spec gets its node back
		s.known[string(s.key)] = &kept
	}
	volumes := of.Volumes
	if spec.Volumes == nil {
		volumes = own.Volumes
	}
	*spec = *of
	spec.NodeName, spec.Hostname, spec.Volumes = own.NodeName, own.Hostname, volumes
}
