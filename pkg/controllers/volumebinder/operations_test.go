// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package volumebinder

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestOperations checks the metrics of claims that are provisioned and of claims that get the
// default class.
func TestOperations(t *testing.T) {
	r := prometheus.NewRegistry()
	m, now := newMetrics(r), time.Unix(100, 0)
	done, deleted, other := claim(nil), claim(nil), claim(nil)
	done.UID, deleted.UID, other.UID = "done", "deleted", "other"
	m.provision(done, "p", now)
	m.provision(done, "p", now.Add(time.Minute)) // another sync of the same claim
	m.provision(deleted, "p", now)
	m.forget(deleted)
	for range 2 {
		m.bound(done, now.Add(2*time.Minute))
		m.bound(deleted, now.Add(2*time.Minute))
		m.bound(other, now.Add(2*time.Minute))
	}
	m.failed("p")
	m.gotClass(nil)
	m.gotClass(errors.New("no"))
	got := controllertest.Metrics(t, r)
	for name, want := range map[string]float64{
		"volume_operation_total_seconds{operation_name=provision,plugin_name=p}": 1,
		"volume_operation_errors_total{operation_name=provision,plugin_name=p}":  1,
		"retroactive_storageclass_total":                                         2,
		"retroactive_storageclass_errors_total":                                  1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if n := len(m.begun); n != 0 {
		t.Errorf("%d claims are kept", n)
	}
}
