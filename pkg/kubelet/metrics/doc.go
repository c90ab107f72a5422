// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics declares the kubelet's metrics about pods, their volumes and images, and the
// kubelet itself. The names are those of Kubernetes.
//
// The code that causes an event counts it at once. A state, such as the number of running pods, is
// computed on each scrape from data that the kubelet already has; nothing is polled for a metric.
// Labels have few values: no label contains the name of a pod, and names of claims are exported
// only while their volumes are mounted.
//
// The package depends on no other part of the kubelet. Metrics about CPUs, devices, DRA, probes and
// calls to the runtime are declared in the packages for them.
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

// register registers collectors with r. It does nothing if r is nil.
func register(r prometheus.Registerer, list ...prometheus.Collector) {
	if r != nil {
		r.MustRegister(list...)
	}
}

// static returns the value of the label "static". As in Kubernetes, it is empty for pods from the
// API.
func static(is bool) string {
	if is {
		return "true"
	}
	return ""
}
