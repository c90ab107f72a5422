// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package satoken

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics count uses of tokens, with Kubernetes' names and help texts.
type Metrics struct {
	legacy, stale, valid, manual, generated, invalidated prometheus.Counter
}

// NewMetrics registers the metrics with r. If r is nil, they are not exported.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(r).NewCounter(prometheus.CounterOpts{Name: "serviceaccount_" + name, Help: help})
	}
	return &Metrics{
		legacy:    counter("legacy_tokens_total", "[BETA] Cumulative legacy service account tokens used"),
		stale:     counter("stale_tokens_total", "[BETA] Cumulative stale projected service account tokens used"),
		valid:     counter("valid_tokens_total", "[BETA] Cumulative valid projected service account tokens used"),
		manual:    counter("legacy_manual_token_uses_total", "[ALPHA] Cumulative manually created legacy tokens used"),
		generated: counter("legacy_auto_token_uses_total", "[ALPHA] Cumulative auto-generated legacy tokens used"),
		invalidated: counter("invalid_legacy_auto_token_uses_total",
			"[ALPHA] Cumulative invalid auto-generated legacy tokens used"),
	}
}
