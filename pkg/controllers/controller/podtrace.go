// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/daemon/podtrace"
)

// spanCreate is the name of the trace span that a controller records in a pod's trace when it
// creates the pod.
const spanCreate = "controller.create"

// CreatePod creates a pod. If d.Traces is set, it records the create as a span in the pod's trace.
func (d *Deps) CreatePod(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	if d.Traces == nil {
		return d.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	}
	began := d.Clock.Now()
	got, err := d.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return got, err
	}
	s := podtrace.Span{Name: spanCreate, Start: began, End: d.Clock.Now()}
	if owner := metav1.GetControllerOfNoCopy(got); owner != nil {
		s.Attributes = append(s.Attributes, attribute.String("keelson.owner.kind", owner.Kind),
			attribute.String("keelson.owner.name", owner.Name))
	}
	d.Traces.Record(ctx, got, s)
	return got, nil
}
