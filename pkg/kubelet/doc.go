// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the node agent. It assembles the parts of the kubelet and runs them.
//
// assembly.go builds all parts, in the order of their dependencies, and kubelet.go runs them. The
// parts in this package connect the packages below it: they read pods from the API server and from
// files, follow the container runtime, admit pods, measure the resources that pods use, and clean up
// after pods. Package worker decides what to do for each pod, and package node keeps the Node object
// up to date.
//
// The event stream of the container runtime reports which pods have changed. A periodic listing of
// the runtime finds changes that the stream missed.
//
// The kubelet keeps little state of its own. After a restart, it reads pods and containers from the
// runtime, the disk and the API. Files of its own hold only what the API does not contain, such as
// which of the node's resources (CPUs, memory, devices, claims, user IDs) are assigned to which pods.
// Containers keep running while the kubelet restarts.
package kubelet
