// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cri connects the kubelet to the container runtime. It contains a client of the CRI, the
// observed state of pods as plain values, the labels and annotations that connect sandboxes and
// containers to pods, and pure functions that convert a pod's spec to the runtime's configuration.
//
// Only the runtime records what runs on the node. All that the kubelet must know about a container
// after a restart is in the labels and annotations that this package writes. They have Kubernetes'
// names, so that other tools can read them.
//
// A Client is safe for concurrent use. It makes no decisions about pods.
package cri
