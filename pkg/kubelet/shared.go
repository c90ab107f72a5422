// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/node"
	"keelson.dev/keelson/pkg/kubelet/worker"
)

// shared holds what most parts of the kubelet use. It does not depend on any other part.
type shared struct {
	cfg    Config
	events *events
	// workers finds the workers of pods, to wake pods or to end them.
	workers *worker.Registry
	// node holds the Node object as it was last read from the API. Its method Poke makes the
	// kubelet update the Node's status.
	node      *node.Handle
	heartbeat *heartbeat
	metrics   nodeMetrics
}

func newShared(cfg Config) *shared {
	h := node.NewHandle(node.Identity{Client: cfg.Client, Name: cfg.NodeName, Hostname: cfg.Hostname, Labels: cfg.Labels})
	return &shared{
		cfg: cfg, events: newEvents(cfg, h.Current), workers: worker.NewRegistry(), node: h,
		heartbeat: &heartbeat{clock: cfg.Clock}, metrics: newNodeMetrics(cfg.Metrics, cfg.Clock),
	}
}

// nodeMetrics holds the kubelet's metrics, grouped by what they measure.
type nodeMetrics struct {
	pods    *metrics.Pods
	starts  starts
	startup *startup
	resizes resizes
	// upkeep holds the metrics of work for the node as a whole, such as listings of the runtime.
	upkeep  *metrics.Node
	storage *metrics.Storage
	// probes is a separate registry, because the kubelet serves the metrics of probes separately,
	// at /metrics/probes.
	probes *prometheus.Registry
}

func newNodeMetrics(r prometheus.Registerer, clk clock.Clock) nodeMetrics {
	return nodeMetrics{
		pods: metrics.NewPods(r), starts: newStarts(r), resizes: newResizes(r), upkeep: metrics.NewNode(r),
		startup: newStartup(r, clk), storage: metrics.NewStorage(r), probes: prometheus.NewRegistry(),
	}
}

// signal wakes one waiting goroutine. It holds at most one token, so signals that are raised before
// the goroutine receives are merged into one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// raise wakes the goroutine that waits for the signal. It does not block.
func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}
