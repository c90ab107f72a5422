// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// StaleSkips counts a sync that was postponed because the cache of a resource does not show the
// controller's own writes yet.
type StaleSkips func(schema.GroupResource)

// NewStaleSkips registers the counter of the controller of a kind. r may be nil.
func NewStaleSkips(r prometheus.Registerer, subsystem, kind string) StaleSkips {
	count := promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Subsystem: subsystem, Name: "stale_sync_skips_total",
		Help: "[ALPHA] Total number of " + kind + " syncs skipped due to a stale watch cache.",
	}, []string{"group", "resource"})
	return func(late schema.GroupResource) { count.WithLabelValues(late.Group, late.Resource).Inc() }
}
