// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices offers the devices of device plugins as extended resources and assigns them to
// containers: Kubernetes' device plugin API, v1beta1.
//
// A plugin registers at kubelet.sock and serves a socket beside it. While its stream of devices is
// open, the devices in the stream are the capacity of its resource. When the stream has ended, the
// resource remains for a while without devices, so that the plugin can be replaced.
//
// Devices are chosen at a pod's admission and belong to its containers until nothing of the pod
// runs any more. The containers after an init container can take over its devices. Assignments are
// stored in a file, with what containers need to access the devices: after a restart of the
// kubelet, containers restart without a call to the plugin and no device is assigned twice.
//
// If a plugin reports the NUMA nodes of its devices, they are chosen close to the container's CPUs
// and memory, as the topology manager decides.
package devices
