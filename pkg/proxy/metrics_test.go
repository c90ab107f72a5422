// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestPendingChanges checks that the changes of a failed round stay pending until a round succeeds.
func TestPendingChanges(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	expect := func(svcs, slices float64) {
		t.Helper()
		if s, e := testutil.ToFloat64(m.svcWaiting), testutil.ToFloat64(m.endpointWaiting); s != svcs || e != slices {
			t.Errorf("%v services and %v slices are pending, want %v and %v", s, e, svcs, slices)
		}
	}
	m.collected(&batch{svcs: 2, slices: 3})
	expect(2, 3)
	m.collected(&batch{}) // the next round begins after the first has failed
	expect(2, 3)
	m.collected(&batch{slices: 1})
	expect(2, 4)
	m.applied()
	expect(0, 0)
	if n := testutil.ToFloat64(m.endpointChanges); n != 4 {
		t.Errorf("%v changes of slices, want 4", n)
	}
}
