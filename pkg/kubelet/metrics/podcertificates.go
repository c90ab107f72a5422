// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/prometheus/client_golang/prometheus"

// PodCertificate is the set of label values of a podCertificate source of a projected volume.
type PodCertificate struct{ Signer, State string }

// PodCertificates computes its metric about pods' certificates on each scrape.
type PodCertificates struct {
	States func() map[PodCertificate]int
}

var podCertificateStates = desc("kubelet_podcertificate_states",
	"[ALPHA] Number of podCertificate sources in the volumes of pods on the node, by signer and state.",
	"signer_name", "state")

// Describe implements prometheus.Collector.
func (*PodCertificates) Describe(ch chan<- *prometheus.Desc) { ch <- podCertificateStates }

// Collect implements prometheus.Collector.
func (p *PodCertificates) Collect(ch chan<- prometheus.Metric) {
	for k, n := range p.States() {
		ch <- prometheus.MustNewConstMetric(podCertificateStates, prometheus.GaugeValue, float64(n), k.Signer, k.State)
	}
}
