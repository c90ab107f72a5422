// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// memories hold, for each job, data that the informers' caches do not have. They are safe for
// concurrent use.
type memories struct {
	mu    sync.Mutex
	byKey map[string]*memory
}

type memory struct {
	uid types.UID
	// released are pods whose finalizer was removed although the cache still shows it.
	released sets.Set[types.UID]
	// version is the resource version of the job after the controller's last write.
	version string
	backoff backoff
}

func newMemories() *memories { return &memories{byKey: map[string]*memory{}} }

// entry returns the memory of a job. It creates a new memory if there is none, or if the job has
// replaced another job of the same name. The caller holds m.mu.
func (m *memories) entry(job *batchv1.Job) *memory {
	key := controller.Key(job)
	x := m.byKey[key]
	if x == nil || x.uid != job.UID {
		x = &memory{uid: job.UID, released: sets.New[types.UID]()}
		m.byKey[key] = x
	}
	return x
}

// stale reports whether the job in the informer's cache is older than the controller's last write
// of it.
func (m *memories) stale(job *batchv1.Job) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	version := m.entry(job).version
	if version == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(job.ResourceVersion, version)
	return err == nil && order < 0
}

// recall returns the job's back-off, and the UIDs of those of the given pods whose finalizer was
// removed although the cache still shows it.
func (m *memories) recall(job *batchv1.Job, pods []*v1.Pod) (sets.Set[types.UID], backoff) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.entry(job)
	taken := sets.New[types.UID]()
	for _, pod := range pods {
		if tracked(pod) && x.released.Has(pod.UID) {
			taken.Insert(pod.UID)
		}
	}
	x.released = taken
	return taken.Clone(), x.backoff
}

// recordWrite records the version of the job after a write, and its back-off.
func (m *memories) recordWrite(job *batchv1.Job, b backoff) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.entry(job)
	x.version, x.backoff = job.ResourceVersion, b
}

// recordRelease records that the finalizer of a pod is about to be removed.
func (m *memories) recordRelease(job *batchv1.Job, pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(job).released.Insert(pod)
}

// undoRelease records that the request to remove the finalizer of a pod failed.
func (m *memories) undoRelease(job *batchv1.Job, pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(job).released.Delete(pod)
}

func (m *memories) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byKey, key)
}
