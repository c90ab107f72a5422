// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
)

// metricsHandler answers with the server's metrics, and with those that the
// libraries keep in their own registry. A name that both have is the server's.
func metricsHandler(own prometheus.Gatherer) http.Handler {
	gather := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		mine, err := own.Gather()
		if err != nil {
			return nil, err
		}
		theirs, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			return nil, err
		}
		have := make(map[string]bool, len(mine))
		for _, f := range mine {
			have[f.GetName()] = true
		}
		for _, f := range theirs {
			if !have[f.GetName()] {
				mine = append(mine, f)
			}
		}
		return mine, nil
	})
	return promhttp.HandlerFor(gather, promhttp.HandlerOpts{})
}
