// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package source determines from where the kubelet got a pod: from the API server, or as a static
// pod from a file or URL. For each static pod the API has a mirror pod, which shows the static pod's
// spec and status. The kubelet does not run the mirror pod.
package source

import (
	v1 "k8s.io/api/core/v1"
)

// Annotations of static pods and their mirror pods. Kubernetes uses the same ones.
const (
	// AnnotationSource contains the source of a pod: File, HTTP or API.
	AnnotationSource = "kubernetes.io/config.source"
	// AnnotationHash contains a hash that identifies the version of a static pod.
	AnnotationHash = "kubernetes.io/config.hash"
	// AnnotationMirror marks a mirror pod. Its value is the hash of the static pod that it shows.
	AnnotationMirror = v1.MirrorPodAnnotationKey
	// AnnotationSeen contains the time at which the kubelet first read the pod.
	AnnotationSeen = "kubernetes.io/config.seen"

	// File and HTTP are the sources of static pods, and API is the source of other pods.
	File = "file"
	HTTP = "http"
	API  = "api"
)

// Static reports whether the pod is a static pod.
func Static(pod *v1.Pod) bool {
	s, ok := pod.Annotations[AnnotationSource]
	return ok && s != API
}

// Mirror reports whether the pod is the mirror pod of a static pod.
func Mirror(pod *v1.Pod) bool {
	_, ok := pod.Annotations[AnnotationMirror]
	return ok
}
