// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/api/clock"
	"keelson.dev/apiserver/store"
	"keelson.dev/apiserver/store/kv"
	"keelson.dev/apiserver/store/kv/memory"
	"keelson.dev/apiserver/transcode"
	"keelson.dev/keelson/pkg/api"
	"keelson.dev/keelson/pkg/api/rowtest"
)

// TestStoreMetrics sends one request of each kind to a store. It checks that each is counted with
// its operation and resource, and that failed requests are counted apart.
func TestStoreMetrics(t *testing.T) {
	m := newStoreMetrics(prometheus.NewRegistry(), clock.Real(), "/registry", api.Rows(api.Deps{}))
	s := measuredStore{memory.New(clock.Real()), m}
	const pod = "/registry/pods/ns/p"
	created, err := s.Put(t.Context(), pod, []byte("1"), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	updated, err := s.Put(t.Context(), pod, []byte("2"), created.Revision, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Range(t.Context(), kv.RangeOptions{Prefix: "/registry/services/specs/"}); err != nil {
		t.Fatal(err)
	}
	things := kv.RangeOptions{Prefix: "/registry/example.com/things/", Revision: 1 << 40}
	if _, err := s.Range(t.Context(), things); err == nil {
		t.Fatal("a future revision was read")
	}
	if _, err := s.Delete(t.Context(), pod, updated.Revision); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ operation, group, resource string }{
		{"create", "", "pods"}, {"update", "", "pods"}, {"get", "", "pods"}, {"delete", "", "pods"},
		{"list", "", "services"}, {"list", "example.com", "things"},
	} {
		if n := testutil.ToFloat64(m.total.WithLabelValues(tc.operation, tc.group, tc.resource)); n != 1 {
			t.Errorf("%v is %v, want 1", tc, n)
		}
	}
	if n := testutil.ToFloat64(m.failed.WithLabelValues("list", "example.com", "things")); n != 1 {
		t.Errorf("failed lists: %v, want 1", n)
	}
	backend := store.NewBackend(store.BackendConfig{KV: s, Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
		Undecodable: m.undecodable})
	row := rowtest.Row(t, api.Rows(api.Deps{}), "services")
	services := stores{&databases{all: []*database{{kv: s, backend: backend}}}, transcode.NewTypes(),
		map[schema.GroupVersionKind]*shared{}}.of(row)
	if _, err := s.Put(t.Context(), "/registry/services/specs/ns/s", []byte("{"), 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := services.Get(t.Context(), "ns/s", ""); err == nil {
		t.Error("an object that cannot be decoded was read")
	}
	if n := testutil.ToFloat64(m.broken.WithLabelValues("", "services")); n != 1 {
		t.Errorf("decode errors: %v, want 1", n)
	}
	if gr := m.resourceOf("compact_rev_key"); gr.Resource != "" {
		t.Errorf("a key that is no object's has resource %v", gr)
	}
}
