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

// memories remember of each job what the caches do not show, or not yet. They are
// safe for concurrent use.
type memories struct {
	mu    sync.Mutex
	byKey map[string]*memory
}

type memory struct {
	uid types.UID
	// taken are pods that have lost the finalizer, though the cache still shows it.
	taken sets.Set[types.UID]
	// version is that of the job as it was last written.
	version string
	backoff backoff
}

func newMemories() *memories { return &memories{byKey: map[string]*memory{}} }

// of returns what is remembered of a job, nothing if it is another than the last
// one of its name. The caller has the lock.
func (m *memories) of(job *batchv1.Job) *memory {
	key := controller.Key(job)
	x := m.byKey[key]
	if x == nil || x.uid != job.UID {
		x = &memory{uid: job.UID, taken: sets.New[types.UID]()}
		m.byKey[key] = x
	}
	return x
}

// stale tells whether a job of the cache is older than what was last written.
func (m *memories) stale(job *batchv1.Job) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	version := m.of(job).version
	if version == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(job.ResourceVersion, version)
	return err == nil && order < 0
}

// recall returns those of the cache's pods that have lost the finalizer without
// the cache showing it, and the back-off.
func (m *memories) recall(job *batchv1.Job, pods []*v1.Pod) (sets.Set[types.UID], backoff) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.of(job)
	taken := sets.New[types.UID]()
	for _, pod := range pods {
		if tracked(pod) && x.taken.Has(pod.UID) {
			taken.Insert(pod.UID)
		}
	}
	x.taken = taken
	return taken.Clone(), x.backoff
}

// wrote remembers a write of the job, and the back-off that goes with it.
func (m *memories) wrote(job *batchv1.Job, b backoff) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.of(job)
	x.version, x.backoff = job.ResourceVersion, b
}

// take remembers that a pod is to lose the finalizer.
func (m *memories) take(job *batchv1.Job, pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(job).taken.Insert(pod)
}

// keep remembers that it may not have.
func (m *memories) keep(job *batchv1.Job, pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(job).taken.Delete(pod)
}

func (m *memories) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byKey, key)
}
