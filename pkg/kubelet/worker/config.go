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

// Config holds the dependencies and settings that all workers of a node share.
type Config struct {
	Clock clock.Clock
	Log   *slog.Logger
	// Event records an event on the pod's container with the given name, or on the pod itself if
	// container is empty.
	Event func(pod *v1.Pod, container, eventType, reason, message string)

	Parts
	Rules
	Telemetry
	Settings
}

// Parts are the parts of the kubelet that workers use to run pods.
type Parts struct {
	Runtime Runtime
	Volumes Volumes
	Objects Objects
	Images  Images
	Cgroups Cgroups
	Devices Devices
	// Handler runs the probes and lifecycle handlers of containers.
	Handler *prober.Handler
}

// Rules are the parts of the kubelet that decide what may happen to pods, and those to which
// workers report.
type Rules struct {
	Status       Statuses
	Allocation   Allocation
	Preemption   Preemption
	Placement    Placement
	Environment  Environment
	RuntimeState RuntimeState
	Release      Release
}

// Telemetry holds the metrics and traces of workers. Every field may be nil.
type Telemetry struct {
	// Metrics counts the actions of workers.
	Metrics *metrics.Pods
	// ProbeMetrics is the registry for the metrics of probes.
	ProbeMetrics prometheus.Registerer
	// Tracer creates the spans for the actions of workers.
	Tracer trace.Tracer
	// Traces holds the trace of each pod that is starting. The spans of a pod's start become part
	// of its trace.
	Traces   *podtrace.Tracer
	Observer Observer
}

// Settings holds values that do not change while the kubelet runs.
type Settings struct {
	// Properties of the cluster and the node that pods can see.
	DNS           dns.Settings
	ClusterDomain string
	HostIPs       []string
	RuntimeName   string
	// Allocatable holds the node's resources that pods may use. Node holds the properties of the
	// node from which the limits of containers are computed.
	Allocatable v1.ResourceList
	Node        qos.Node

	// Directories, with their usual values:
	RootDir     string // /var/lib/kubelet
	LogRoot     string // /var/log/pods
	LinkRoot    string // /var/log/containers
	SeccompRoot string

	// SeccompDefault makes the runtime's default seccomp profile the profile of containers that do
	// not specify one.
	SeccompDefault bool
	// MaxBackoff is the longest delay before a container restarts. If it is 0, Kubernetes' default
	// applies.
	MaxBackoff time.Duration
}
