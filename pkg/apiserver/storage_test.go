// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"log/slog"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv/memory"
	"keelson.dev/apiserver/transcode"
	"keelson.dev/keelson/pkg/api"
)

// TestEventsAreKeptOnce checks that objects that several resources serve are cached once.
func TestEventsAreKeptOnce(t *testing.T) {
	kvs := memory.New(clock.Real())
	defer func() { _ = kvs.Close() }()
	backend := store.NewBackend(store.BackendConfig{KV: kvs, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler)})
	s := stores{&databases{all: []*database{{kv: kvs, backend: backend}}}, transcode.NewTypes(),
		map[schema.GroupVersionKind]*shared{}}
	made := map[string]*store.Store{}
	for _, row := range api.Rows(api.Deps{}) {
		if row.Resource == "events" {
			made[row.Group] = s.of(row)
		}
	}
	if alias := made["events.k8s.io"].Alias; alias == nil || alias.Of != made[""] {
		t.Errorf("events.k8s.io is the alias %+v, want one of the core group's events", alias)
	}
}
