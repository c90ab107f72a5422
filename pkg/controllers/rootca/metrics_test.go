// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"keelson.dev/keelson/pkg/controllers/controllertest"
)

// TestMetrics checks that syncs are counted by the status code of the API server's response.
func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	m.synced(time.Second, nil)
	m.synced(time.Second, nil)
	m.synced(time.Second, fmt.Errorf("publish: %w", apierrors.NewForbidden(v1.Resource("configmaps"), "a", nil)))
	m.synced(time.Second, errors.New("cannot connect"))
	want := map[string]float64{}
	for code, n := range map[string]float64{"200": 2, "403": 1, "500": 1} {
		want["root_ca_cert_publisher_sync_total{code="+code+"}"] = n
		want["root_ca_cert_publisher_sync_duration_seconds{code="+code+"}"] = n
	}
	if got := controllertest.Metrics(t, r); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
