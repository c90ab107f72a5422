// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// written stores, by key, the newest versions that the controller wrote, so that it does not decide
// from a cache that is older than its own writes. It is safe for concurrent use.
type written struct {
	mu    sync.Mutex
	byKey map[string]map[cache.SharedIndexInformer]string
}

func newWritten() *written {
	return &written{byKey: map[string]map[cache.SharedIndexInformer]string{}}
}

// record records a write of an object that an informer shows.
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

// behind returns the informer of a cache that does not show all writes for a key, or nil.
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

// forget removes a key whose object was deleted.
func (w *written) forget(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byKey, key)
}

// older reports whether version a was before b. An empty version is older than all others.
func older(a, b string) bool {
	if a == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
