// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// written records the resource versions of the controller's latest writes, by the StatefulSet's key
// and by informer. So the controller can detect that a cache is older than its own writes. It is
// safe for concurrent use.
type written struct {
	mu    sync.Mutex
	byKey map[string]map[cache.SharedIndexInformer]string
}

func newWritten() *written {
	return &written{byKey: map[string]map[cache.SharedIndexInformer]string{}}
}

// record records the version of an object after a write. informer is the informer of objects of
// this kind.
func (w *written) record(key string, informer cache.SharedIndexInformer, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byKey[key] == nil {
		w.byKey[key] = map[cache.SharedIndexInformer]string{}
	}
	if older(w.byKey[key][informer], version) {
		w.byKey[key][informer] = version
	}
}

// behind returns an informer whose cache does not show all writes for a StatefulSet yet, or nil if
// all caches do.
func (w *written) behind(key string) cache.SharedIndexInformer {
	w.mu.Lock()
	defer w.mu.Unlock()
	for informer, version := range w.byKey[key] {
		if older(informer.GetStore().LastStoreSyncResourceVersion(), version) {
			return informer
		}
	}
	delete(w.byKey, key)
	return nil
}

// forget drops the recorded writes for a StatefulSet that was deleted.
func (w *written) forget(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byKey, key)
}

// older reports whether resource version a is before resource version b. An empty version a is
// before all others.
func older(a, b string) bool {
	if a == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
