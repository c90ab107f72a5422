// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package features tells which features of Kubernetes there are, as the metric
// kubernetes_feature_enabled has them. They are those of the version that this server is
// like, each as it is by default: there are no gates to open or close here, and nothing
// is decided by what the list says.
package features

import (
	_ "embed"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// list has a line for each feature: its name, its stage, and 1 if it is enabled.
//
//go:embed features.txt
var list string

// Metric returns kubernetes_feature_enabled.
func Metric() prometheus.Collector {
	enabled := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_feature_enabled",
		Help: "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
	}, []string{"name", "stage"})
	for line := range strings.Lines(list) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		stage, on, _ := strings.Cut(rest, " ")
		if stage == "GA" {
			stage = "" // as Kubernetes writes it
		}
		gauge := enabled.WithLabelValues(name, stage)
		if on == "1" {
			gauge.Set(1)
		}
	}
	return enabled
}
