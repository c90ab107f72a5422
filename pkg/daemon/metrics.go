// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"

	// These packages make client-go's metrics available in the registry of Kubernetes' libraries.
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection"
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"

	"keelson.dev/keelson/pkg/release"
)

// Metrics is the metrics registry of a process, in which the process registers its own metrics.
// Gather also returns the metrics of libraries: of the Go runtime and the process, of client-go's
// work queues, REST clients and leader elections, and of other Kubernetes libraries in the process.
//
// The libraries have one registry for each process, because client-go's hooks are global variables.
// All Metrics in a process therefore return the same metrics of libraries.
type Metrics struct {
	*prometheus.Registry
}

// NewMetrics returns a registry that already has metrics of the process's memory and of its build.
func NewMetrics() *Metrics {
	r := prometheus.NewRegistry()
	r.MustRegister(newMemoryCollector(), buildInfo(), releaseInfo())
	return &Metrics{r}
}

// Gather returns the process's own metrics and the metrics of libraries, sorted by name. If both
// have a metric with the same name, it returns the process's own metric.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	own, err := m.Registry.Gather()
	if err != nil {
		return nil, err
	}
	theirs, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return nil, err
	}
	named := make(map[string]bool, len(own))
	for _, f := range own {
		named[f.GetName()] = true
	}
	for _, f := range theirs {
		if !named[f.GetName()] {
			own = append(own, f)
		}
	}
	slices.SortFunc(own, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return own, nil
}

// buildInfo returns Kubernetes' metric kubernetes_build_info.
func buildInfo() prometheus.Collector {
	v := VersionInfo()
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info",
		Help: "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, " +
			"git tree state, build date, Go version, and compiler from which Kubernetes was built, and " +
			"platform on which it is running.",
		ConstLabels: prometheus.Labels{
			"major": v.Major, "minor": v.Minor, "git_version": v.GitVersion, "git_commit": v.GitCommit,
			"git_tree_state": v.GitTreeState,
			"build_date":     v.BuildDate, "go_version": v.GoVersion, "compiler": v.Compiler, "platform": v.Platform,
		},
	})
	g.Set(1)
	return g
}

// releaseInfo returns the metric with Keelson's own version.
func releaseInfo() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "keelson_build_info",
		Help:        "1, labeled by the version of Keelson.",
		ConstLabels: prometheus.Labels{"version": release.Version},
	})
	g.Set(1)
	return g
}
