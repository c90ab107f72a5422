// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the node agent. It assembles the parts of the kubelet and runs them.
//
// assembly.go builds every part, in the order of their dependencies; kubelet.go runs them. The
// parts of this package connect the packages below it: they read pods from the API server and from
// files, follow the container runtime, admit pods, measure what they use and clean up after them.
// What to do for a pod is decided in package worker; the Node object is kept by package node.
//
// The runtime's event stream reports which pods have changed, and a periodic listing finds changes
// that the stream missed.
//
// The kubelet keeps little state: after a restart it reads pods and containers from the runtime,
// the disk and the API. It keeps in files only the node's resources that were assigned to pods
// (CPUs, memory, devices, claims, user IDs). Containers keep running during a restart.
package kubelet
