// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package source determines where a pod of the node comes from: the API server, or files on the
// node. Pods from files are static pods. For each static pod the API has a mirror pod, which is
// bound to the node and has no containers of its own.
package source

import (
	v1 "k8s.io/api/core/v1"
)

// Annotations of static pods and their mirrors, as in Kubernetes.
const (
	// AnnotationSource is where a pod comes from.
	AnnotationSource = "kubernetes.io/config.source"
	// AnnotationHash identifies the version of a static pod.
	AnnotationHash = "kubernetes.io/config.hash"
	// AnnotationMirror marks a mirror; its value is the hash of the pod that it shows.
	AnnotationMirror = v1.MirrorPodAnnotationKey
	// AnnotationSeen is when the node first saw the pod.
	AnnotationSeen = "kubernetes.io/config.seen"

	// File and HTTP are the sources of static pods, and API is the source of other pods.
	File = "file"
	HTTP = "http"
	API  = "api"
)

// Static reports whether the pod is a static one.
func Static(pod *v1.Pod) bool {
	s, ok := pod.Annotations[AnnotationSource]
	return ok && s != API
}

// Mirror reports whether the pod is the mirror of a static one.
func Mirror(pod *v1.Pod) bool {
	_, ok := pod.Annotations[AnnotationMirror]
	return ok
}
