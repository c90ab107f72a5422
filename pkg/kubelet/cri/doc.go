// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cri is the kubelet's view of the container runtime: a client of the CRI, the
// observed state of pods as plain values, the labels and annotations that tie
// sandboxes and containers to pods, and the pure functions that turn a pod's spec into
// the runtime's configuration.
//
// The runtime is the only memory of what runs on the node: everything the kubelet has
// to know about a container after its own restart is in the labels and
// annotations written here, under the names that Kubernetes uses, so that other
// tools that read them keep working.
//
// A Client is safe for concurrent use. It decides nothing.
package cri
