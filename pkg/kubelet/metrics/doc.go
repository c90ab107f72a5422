// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics declares the kubelet's metrics about pods, their volumes and images, and the
// kubelet itself, with Kubernetes' names.
//
// Events are counted when they happen, by the code that causes them. States are computed on each
// scrape from data that the kubelet has anyway. It polls nothing for a metric. Labels have few
// values: no label names a pod, and claims appear only while their volumes are mounted.
//
// The package depends on no other part of the kubelet. Metrics of plugins and protocols (CPUs,
// devices, DRA, probes, calls to the runtime) are declared with those parts.
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

// register registers collectors. Without a registry it does nothing.
func register(r prometheus.Registerer, list ...prometheus.Collector) {
	if r != nil {
		r.MustRegister(list...)
	}
}

// static returns the value of the label "static", which Kubernetes leaves empty for pods from the
// API.
func static(is bool) string {
	if is {
		return "true"
	}
	return ""
}
