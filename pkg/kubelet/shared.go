// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"github.com/prometheus/client_golang/prometheus"

	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/node"
	"keelson.dev/keelson/pkg/kubelet/worker"
)

// shared holds what most parts of the kubelet use. It depends on no other part.
type shared struct {
	cfg    Config
	events *events
	// workers wakes and ends pods.
	workers *worker.Registry
	// node is the Node object as last read. Its method Poke makes the kubelet update the Node's
	// status.
	node      *node.Handle
	heartbeat *heartbeat
	metrics   nodeMetrics
}

func newShared(cfg Config) *shared {
	return &shared{
		cfg: cfg, events: newEvents(cfg), workers: worker.NewRegistry(),
		node: node.NewHandle(node.Identity{Client: cfg.Client, Name: cfg.NodeName, Hostname: cfg.Hostname,
			Labels: cfg.Labels}),
		heartbeat: &heartbeat{clock: cfg.Clock}, metrics: newNodeMetrics(cfg.Metrics),
	}
}

// nodeMetrics are the kubelet's metrics, by what they measure.
type nodeMetrics struct {
	pods    *metrics.Pods
	starts  starts
	resizes resizes
	// upkeep holds the metrics about keeping the node in order.
	upkeep  *metrics.Node
	storage *metrics.Storage
	// probes have a registry of their own because there are many of them.
	probes *prometheus.Registry
}

func newNodeMetrics(r prometheus.Registerer) nodeMetrics {
	return nodeMetrics{
		pods: metrics.NewPods(r), starts: newStarts(r), resizes: newResizes(r), upkeep: metrics.NewNode(r),
		storage: metrics.NewStorage(r), probes: prometheus.NewRegistry(),
	}
}

// signal wakes one goroutine. It holds at most one token.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// raise wakes the goroutine. It does not block.
func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}
