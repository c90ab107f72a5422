// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices offers the devices of device plugins as extended resources and assigns them to
// containers: Kubernetes' device plugin API, v1beta1.
//
// A plugin registers at kubelet.sock and serves a socket beside it. While its stream of devices is
// open, they count as its resource. After the stream ends, the resource remains for a while without
// devices, so that a plugin can be replaced.
//
// Devices are chosen at a pod's admission and belong to its containers until nothing of the pod
// runs any more. An init container passes its devices on to the containers after it. Assignments
// are stored in a file, with what containers need to access the devices: after a restart of the
// kubelet, containers restart without a call to the plugin and no device is assigned twice.
//
// If a plugin reports the NUMA nodes of its devices, they are chosen close to the container's CPUs
// and memory, as the topology manager decides.
package devices
