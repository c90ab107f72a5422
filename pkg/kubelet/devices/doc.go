// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices lets device plugins offer devices of the node as extended
// resources, and gives them to containers: Kubernetes' device plugin API, v1beta1.
//
// A plugin registers at kubelet.sock and serves at a socket beside it. While its
// stream of devices is open they count as its resource; when it ends, the resource
// stays for a while with nothing to allocate, so that a plugin can be replaced.
//
// Devices are chosen when a pod is admitted and belong to its containers until
// nothing of the pod runs any more. An init container leaves its devices to the
// containers after it. What was given to whom, and how containers get at it, is kept
// in a file: containers are started again after the kubelet's restart without asking
// the plugin, and nothing is given twice.
//
// Where a plugin says which NUMA nodes its devices are near to, devices are given near to
// the container's CPUs and memory, as the topology manager says.
package devices
