// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// WithMetrics returns a constructor like construct, except that the controller registers its
// metrics in r.
func WithMetrics(
	r prometheus.Registerer, construct func(controller.Deps) (controller.Controller, error),
) func(controller.Deps) (controller.Controller, error) {
	return func(d controller.Deps) (controller.Controller, error) {
		d.Metrics = r
		return construct(d)
	}
}

// Metrics returns the values of all counters and gauges in a gatherer, and the numbers of
// observations of all histograms, by name and labels: "syncs_total{code=200}", or "syncs_total"
// without labels.
func Metrics(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := f.GetName()
			if len(labels) > 0 {
				key = fmt.Sprintf("%s{%s}", key, strings.Join(labels, ","))
			}
			out[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}
