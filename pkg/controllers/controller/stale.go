// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// StaleSkips counts a sync that is put off because a cache does not show yet what
// the controller wrote of a resource.
type StaleSkips func(schema.GroupResource)

// NewStaleSkips registers the count of a controller of a kind; a nil registerer has none.
func NewStaleSkips(r prometheus.Registerer, subsystem, kind string) StaleSkips {
	count := promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Subsystem: subsystem, Name: "stale_sync_skips_total",
		Help: "[ALPHA] Total number of " + kind + " syncs skipped due to a stale watch cache.",
	}, []string{"group", "resource"})
	return func(late schema.GroupResource) { count.WithLabelValues(late.Group, late.Resource).Inc() }
}
