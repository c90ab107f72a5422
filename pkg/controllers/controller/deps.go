// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/daemon/podtrace"
)

// Controller is one controller of the controller manager.
type Controller interface {
	// Run runs the controller until ctx ends. It returns when all goroutines that it started have
	// ended. The caller fills the shared caches before it calls Run.
	Run(ctx context.Context) error
}

// Deps are the arguments of a controller's constructor. All controllers get the same Informers and
// Mapper.
type Deps struct {
	// Client, Metadata and Discovery act as the controller's own service account, or as the
	// manager's user, depending on --use-service-account-credentials.
	Client    kubernetes.Interface
	Metadata  metadata.Interface
	Discovery discovery.DiscoveryInterface
	// Informers are the shared caches. Mapper maps kinds such as Deployment to resources such as
	// deployments.
	Informers informers.SharedInformerFactory
	Mapper    meta.ResettableRESTMapper

	Events record.EventRecorder
	Clock  clock.Clock
	Log    *slog.Logger
	// Metrics registers the controller's metrics. It is nil in tests that need none.
	Metrics prometheus.Registerer
	// Traces records a span in a pod's trace when a controller creates the pod. It may be nil.
	Traces  *podtrace.Tracer
	Options Options
}
