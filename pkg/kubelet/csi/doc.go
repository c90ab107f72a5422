// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csi provides volumes of Container Storage Interface (CSI) drivers. It registers drivers,
// publishes them in the node's CSINode, and calls them to stage, publish, measure, expand and
// remove the volumes of pods.
//
// Paths are the same as in Kubernetes:
//
//	pods/UID/volumes/kubernetes.io~csi/NAME/{mount,vol_data.json}                a pod's file system
//	plugins/kubernetes.io/csi/DRIVER/SHA256/{globalmount,vol_data.json}          where it is staged
//	pods/UID/volumeDevices/kubernetes.io~csi/NAME                                a link to a pod's device
//	plugins/kubernetes.io/csi/volumeDevices/{publish/NAME/UID,staging/NAME}      the device, and where it is staged
//	plugins/kubernetes.io/csi/volumeDevices/NAME/data/vol_data.json              the pod that uses it
//
// Invariants:
//
//   - A call is recorded on disk before it is made. Whenever the kubelet is killed, the next
//     process finds all that must be undone.
//   - Calls are retried until the driver succeeds; all of them can be repeated.
//   - A directory is removed only if it is empty and nothing is mounted at it. Nothing in a volume
//     is ever deleted.
//   - A driver has at most one call in progress for each volume, and a volume is unstaged only if
//     no pod of the node uses it.
//   - A volume that the control plane attaches is used only after the node's status lists it as in
//     use, and while the status lists it as attached. So it is never detached while a pod uses it.
package csi
