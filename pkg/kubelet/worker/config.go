// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/daemon/podtrace"
	"keelson.dev/keelson/pkg/kubelet/dns"
	"keelson.dev/keelson/pkg/kubelet/metrics"
	"keelson.dev/keelson/pkg/kubelet/prober"
	"keelson.dev/keelson/pkg/kubelet/qos"
)

// Config has the dependencies and settings that the workers of a node share.
type Config struct {
	Clock clock.Clock
	Log   *slog.Logger
	// Event records an event on a container of the pod, or on the pod if container is empty.
	Event func(pod *v1.Pod, container, eventType, reason, message string)

	Parts
	Rules
	Telemetry
	Settings
}

// Parts are the parts of the kubelet with which workers run pods.
type Parts struct {
	Runtime Runtime
	Volumes Volumes
	Objects Objects
	Images  Images
	Cgroups Cgroups
	Devices Devices
	// Handler runs probes and lifecycle handlers.
	Handler *prober.Handler
}

// Rules are the parts of the kubelet that decide about pods and that workers report to.
type Rules struct {
	Status       Statuses
	Allocation   Allocation
	Preemption   Preemption
	Placement    Placement
	Environment  Environment
	RuntimeState RuntimeState
	Release      Release
}

// Telemetry are the metrics and traces of workers. Every field may be nil.
type Telemetry struct {
	// Metrics count the actions of workers.
	Metrics *metrics.Pods
	// ProbeMetrics is the registry for metrics of probes.
	ProbeMetrics prometheus.Registerer
	// Tracer creates spans for the actions of workers.
	Tracer trace.Tracer
	// Traces has the traces of pods. While a pod starts, its spans are part of its trace.
	Traces   *podtrace.Tracer
	Observer Observer
}

// Settings are values that do not change while the kubelet runs.
type Settings struct {
	// Properties of the cluster and the node that pods can see.
	DNS           dns.Settings
	ClusterDomain string
	HostIPs       []string
	RuntimeName   string
	// Allocatable are the node's resources for pods. Node has the values from which limits are
	// computed.
	Allocatable v1.ResourceList
	Node        qos.Node

	// Directories.
	RootDir     string // /var/lib/kubelet
	LogRoot     string // /var/log/pods
	LinkRoot    string // /var/log/containers
	SeccompRoot string

	// SeccompDefault applies the runtime's default seccomp profile to containers that do not
	// specify one.
	SeccompDefault bool
	// MaxBackoff is the longest delay before a container restarts; 0 means Kubernetes' default.
	MaxBackoff time.Duration
}
