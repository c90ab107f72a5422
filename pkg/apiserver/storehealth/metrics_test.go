// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package storehealth

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/apiserver/store/kv/etcd"
)

// TestMemberMetrics checks that only members whose state is known have metrics, and that members of
// other databases keep theirs.
func TestMemberMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	first, second := etcd.Member{ID: 0xa, Size: 1}, etcd.Member{ID: 0xb, Size: 2}
	m.observe("other", []etcd.Member{second}, Ample, nil)
	shown := m.observe("etcd-0", []etcd.Member{first, second}, Ample, nil)
	first.Size, second.Err = 3, errors.New("down")
	m.observe("etcd-0", []etcd.Member{first, second}, Refusing, shown)

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, v := range f.GetMetric() {
			key := f.GetName()
			for _, l := range v.GetLabel() {
				key += " " + l.GetValue()
			}
			got[key] = v.GetGauge().GetValue()
		}
	}
	for key, want := range map[string]float64{
		"keelson_store_level etcd-0": float64(Refusing), "keelson_store_member_size_bytes etcd-0 a": 3,
		"keelson_store_member_size_bytes other b": 2,
	} {
		if value, ok := got[key]; !ok || value != want {
			t.Errorf("%s = %v (%t), want %v", key, value, ok, want)
		}
	}
	if _, ok := got["keelson_store_member_size_bytes etcd-0 b"]; ok {
		t.Error("a member whose state is not known has metrics")
	}
}
