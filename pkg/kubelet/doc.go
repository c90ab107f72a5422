// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the node agent: it puts its parts together and feeds them.
//
// Pods come from the API server and from files, facts from the container runtime: its event
// stream tells which pod to look at, and a slow listing finds what the stream
// missed. What to do for a pod is decided in package worker; what the node
// itself tells is in package node.
//
// The kubelet remembers little: after a restart the runtime, the disk and the API
// tell it all, but for what pods were given of the node (resources, devices, claims,
// user IDs), which it keeps in files. Containers do not notice.
package kubelet
