// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices offers the devices of device plugins as extended resources and assigns them to
// containers. It implements Kubernetes' device plugin API, v1beta1.
//
// A plugin registers at kubelet.sock and serves a socket in the same directory. As long as the
// plugin's stream of devices is open, the devices in the stream are the capacity of its resource.
// After the stream has ended, the resource is still reported for a while, with no allocatable
// devices, so that the plugin can be replaced.
//
// Devices are chosen when a pod is admitted. They belong to the pod's containers until all
// containers of the pod have ended, but later containers can take over the devices of an init
// container. Assignments are stored in a file, together with the settings that containers need to
// access the devices. After a restart of the kubelet, containers therefore restart without a call
// to the plugin, and no device is assigned twice.
//
// If a plugin reports the NUMA nodes of its devices, the topology manager makes sure that devices
// are chosen close to the container's CPUs and memory.
package devices
