// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics declares, under Kubernetes' names, what the kubelet tells of pods, of their volumes and
// images, and of itself.
//
// What happens is counted by who does it, at that moment; what is so is counted when somebody asks, from what is known
// then. Nothing is polled for a metric. Labels have few values: pods are not among them, and of claims those
// alone whose volumes are mounted.
//
// It knows nothing of who counts. Metrics of one part's own plugins and protocols (CPUs, devices, DRA, probes, the
// runtime's calls) are with that part.
package metrics

import "github.com/prometheus/client_golang/prometheus"

// durations are the buckets of most durations, in seconds.
var durations = prometheus.DefBuckets

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// register registers collectors; without a registry they count for nobody.
func register(r prometheus.Registerer, list ...prometheus.Collector) {
	if r != nil {
		r.MustRegister(list...)
	}
}

// static is the label of that name: Kubernetes has it empty for pods of the API.
func static(is bool) string {
	if is {
		return "true"
	}
	return ""
}
