// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csi provides volumes of Container Storage Interface (CSI) drivers. It registers drivers,
// publishes them in the node's CSINode, and calls them to stage, publish, measure, expand and
// remove the volumes of pods.
//
// Paths below the kubelet's directory are the same as in Kubernetes:
//
//	pods/UID/volumes/kubernetes.io~csi/NAME/{mount,vol_data.json}                a pod's file system
//	plugins/kubernetes.io/csi/DRIVER/SHA256/{globalmount,vol_data.json}          staged file system
//	pods/UID/volumeDevices/kubernetes.io~csi/NAME                                link to a pod's block device
//	plugins/kubernetes.io/csi/volumeDevices/{publish/NAME/UID,staging/NAME}      block device and its staging path
//	plugins/kubernetes.io/csi/volumeDevices/NAME/data/vol_data.json              record of a block device
//
// Invariants:
//
//   - A record is written to the disk before the driver is called. Whenever the kubelet is killed,
//     the next process finds everything that must be undone.
//   - Calls are retried until the driver succeeds. Drivers must accept repeated calls.
//   - A directory is removed only if it is empty and nothing is mounted on it. Files in a volume are
//     never deleted.
//   - A driver has at most one call in progress that changes a volume, and a volume is unstaged
//     only if no pod of the node uses it.
//   - A volume that the control plane attaches is used only when the Node's status lists it as in
//     use and as attached. The control plane therefore never detaches it while a pod uses it.
package csi
