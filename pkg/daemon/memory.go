// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs"
)

// memoryCollector exports the resident memory of this process by kind of page. Only anonymous pages
// always occupy memory; the kernel can drop file pages and read them again.
type memoryCollector struct{ bytes *prometheus.Desc }

func newMemoryCollector() prometheus.Collector {
	return memoryCollector{prometheus.NewDesc(
		"keelson_process_memory_bytes",
		"Resident memory of the process: anonymous pages, and pages of mapped files, which the kernel can reclaim.",
		[]string{"pages"}, nil,
	)}
}

// Describe implements prometheus.Collector.
func (c memoryCollector) Describe(descs chan<- *prometheus.Desc) { descs <- c.bytes }

// Collect implements prometheus.Collector. Like the process collector of the Prometheus client, it
// exports nothing if /proc is not readable.
func (c memoryCollector) Collect(out chan<- prometheus.Metric) {
	self, err := procfs.Self()
	if err != nil {
		return
	}
	status, err := self.NewStatus()
	if err != nil {
		return
	}
	out <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(status.RssAnon), "anonymous")
	out <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(status.RssFile), "file")
}
