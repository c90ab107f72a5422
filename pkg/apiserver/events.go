// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"keelson.dev/keelson/pkg/apiserver/bootstrap"
	"keelson.dev/keelson/pkg/apiserver/services"
)

// startEvents starts to write the events of the server itself, and continues until ctx is done and
// the function stop has been called. As in Kubernetes, events about the ranges of services have the
// API group "", and those about repaired addresses and ports have events.k8s.io.
func (a *assembly) startEvents(ctx context.Context) (stop func()) {
	old := record.NewBroadcaster(record.WithContext(ctx))
	old.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: a.self.client.CoreV1().Events("")})
	a.ranges.Events = old.NewRecorder(scheme.Scheme, corev1.EventSource{Component: bootstrap.ServiceCIDRController})
	b := events.NewBroadcaster(&events.EventSinkImpl{Interface: a.self.client.EventsV1()})
	if err := b.StartRecordingToSinkWithContext(ctx); err != nil { // cannot happen before the call of stop
		a.server.log.Error("Failed to start to write events", "err", err)
	}
	a.repair.Events = b.NewRecorder(scheme.Scheme, services.RepairController)
	return b.Shutdown
}
