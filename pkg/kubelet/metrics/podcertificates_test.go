// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/metrics/metricstest"
)

func TestPodCertificates(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(&metrics.PodCertificates{States: func() map[metrics.PodCertificate]int {
		return map[metrics.PodCertificate]int{{Signer: "a.com/s", State: "fresh"}: 2, {Signer: "a.com/s", State: "denied"}: 1}
	}})
	metricstest.Expect(t, metricstest.Scrape(t, r), map[string]float64{
		`kubelet_podcertificate_states{signer_name="a.com/s",state="fresh"}`:  2,
		`kubelet_podcertificate_states{signer_name="a.com/s",state="denied"}`: 1,
	})
}
