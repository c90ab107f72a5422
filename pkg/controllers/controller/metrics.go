// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// StaleSkips increments the metric stale_sync_skips_total: the number of syncs that were postponed
// because the cache of the given resource does not show the controller's own writes yet.
type StaleSkips func(schema.GroupResource)

// NewStaleSkips registers the counter for a controller that syncs objects of the given kind. r may
// be nil, which means that the counter is not exported.
func NewStaleSkips(r prometheus.Registerer, subsystem, kind string) StaleSkips {
	count := promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Subsystem: subsystem, Name: "stale_sync_skips_total",
		Help: "[ALPHA] Total number of " + kind + " syncs skipped due to a stale watch cache.",
	}, []string{"group", "resource"})
	return func(late schema.GroupResource) { count.WithLabelValues(late.Group, late.Resource).Inc() }
}
