// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csi makes volumes by drivers of the Container Storage Interface: it takes
// drivers up, publishes them in the node's CSINode, and has them stage and publish the
// volumes of pods, measure and expand them, and take them away.
//
// Where things are is what Kubernetes has:
//
//	pods/UID/volumes/kubernetes.io~csi/NAME/{mount,vol_data.json}                a pod's file system
//	plugins/kubernetes.io/csi/DRIVER/SHA256/{globalmount,vol_data.json}          where it is staged
//	pods/UID/volumeDevices/kubernetes.io~csi/NAME                                a link to a pod's device
//	plugins/kubernetes.io/csi/volumeDevices/{publish/NAME/UID,staging/NAME}      the device, and where it is staged
//	plugins/kubernetes.io/csi/volumeDevices/NAME/data/vol_data.json              whose it is
//
// Invariants:
//
//   - What is about to be done is on the disk before the driver is asked to: whatever
//     moment the kubelet is killed at, the next one finds all that is to be undone.
//   - Everything is asked for again until the driver says that it is done: all of its
//     calls may be repeated.
//   - A directory is removed only when it is empty and nothing is mounted at it.
//     Nothing in a volume is ever deleted.
//   - About one volume a driver is asked one thing at a time, and a volume is unstaged
//     only when no pod of the node has it.
//   - A volume that is attached by the control plane is used only after the node's
//     status has told that it is in use, and while that status tells that it is
//     attached: so it is never detached below a pod.
package csi
