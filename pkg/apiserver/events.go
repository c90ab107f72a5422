// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"keelson.dev/keelson/pkg/apiserver/bootstrap"
)

// startEvents starts to write the events of the server itself, and continues until ctx is done.
func (a *assembly) startEvents(ctx context.Context) {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: a.self.client.CoreV1().Events("")})
	a.ranges.Events = b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: bootstrap.ServiceCIDRController})
}
