// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
	"k8s.io/client-go/util/flowcontrol"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson.dev/keelson/pkg/kubelet/prober"
)

// events records events on pods and on the node, and writes them to the API server.
type events struct {
	client      kubernetes.Interface
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	name        string                  // name of the node
	current     func() *v1.Node         // returns the Node object, or nil before it was read
	limit       flowcontrol.RateLimiter // limits the rate of writes; nil if the rate is not limited
	// stop ends the writing of events immediately, even if the kubelet is just retrying a write.
	stop context.CancelFunc
}

func newEvents(cfg Config, current func() *v1.Node) *events {
	ctx, stop := context.WithCancel(context.Background())
	b := record.NewBroadcaster(record.WithContext(ctx))
	return &events{cfg.Client, b,
		b.NewRecorder(scheme.Scheme, v1.EventSource{Component: "kubelet", Host: cfg.NodeName}), cfg.NodeName, current,
		eventRate(cfg.Kubelet), stop}
}

// start begins to write recorded events to the API server. Calling e.stop ends the writing.
func (e *events) start() {
	var sink record.EventSink = &typedcorev1.EventSinkImpl{Interface: e.client.CoreV1().Events("")}
	if e.limit != nil {
		sink = limitedSink{sink, e.limit}
	}
	e.broadcaster.StartRecordingToSink(sink)
}

// eventRate returns the rate limiter for writes of events, or nil if the rate is not limited.
func eventRate(c *kubeletconfig.KubeletConfiguration) flowcontrol.RateLimiter {
	if *c.EventRecordQPS == 0 {
		return nil
	}
	return flowcontrol.NewTokenBucketRateLimiter(float32(*c.EventRecordQPS), int(c.EventBurst))
}

// limitedSink delays writes of events that exceed the rate limit. During the delay, later events
// wait in the event broadcaster's queue, whose length is limited.
type limitedSink struct {
	record.EventSink
	limit flowcontrol.RateLimiter
}

// Create implements record.EventSink. It waits for the rate limiter.
func (s limitedSink) Create(event *v1.Event) (*v1.Event, error) {
	s.limit.Accept()
	return s.EventSink.Create(event)
}

// Update implements record.EventSink. It waits for the rate limiter.
func (s limitedSink) Update(event *v1.Event) (*v1.Event, error) {
	s.limit.Accept()
	return s.EventSink.Update(event)
}

// Patch implements record.EventSink. It waits for the rate limiter.
func (s limitedSink) Patch(event *v1.Event, data []byte) (*v1.Event, error) {
	s.limit.Accept()
	return s.EventSink.Patch(event, data)
}

// pod records an event on a pod, or on one of its containers if container is not empty.
func (e *events) pod(pod *v1.Pod, container, eventType, reason, message string) {
	ref, err := reference.GetReference(scheme.Scheme, pod)
	if err != nil {
		return // GetReference fails only if the scheme does not know pods
	}
	if container != "" {
		ref.FieldPath = fieldPath(pod, container)
	}
	e.recorder.Event(ref, eventType, reason, strings.ToValidUTF8(message, "?"))
}

// node records a warning event on the node.
func (e *events) node(reason, message string) { e.nodeState(v1.EventTypeWarning, reason, message) }

// nodeState records an event on the node. As in Kubernetes 1.37, the event has the UID of the Node object, and
// none before the object is known.
func (e *events) nodeState(eventType, reason, message string) {
	ref := &v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: e.name}
	if node := e.current(); node != nil {
		ref.UID = node.UID
	}
	e.recorder.Event(ref, eventType, reason, strings.ToValidUTF8(message, "?"))
}

func fieldPath(pod *v1.Pod, container string) string {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container {
			return "spec.initContainers{" + container + "}"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == container {
			return "spec.ephemeralContainers{" + container + "}"
		}
	}
	return "spec.containers{" + container + "}"
}

// fellBack records that a pod's HTTPS lifecycle hook got an HTTP response, and that the retry over
// HTTP succeeded.
func (s *shared) fellBack(t prober.Target, host string) {
	s.metrics.pods.FellBack()
	s.events.pod(t.Pod, "", v1.EventTypeWarning, "LifecycleHTTPFallback",
		fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", host))
}
