// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volume makes the volumes of a node's pods, keeps their content fresh, and takes them away.
//
// Where things are is what Kubernetes has:
//
//	RootDir/pods/UID/volumes/kubernetes.io~PLUGIN/NAME           the volume, a directory or a mount
//	RootDir/pods/UID/volume-subpaths/NAME/CONTAINER/INDEX        a bind mount of a subPath
//	RootDir/pods/UID/plugins/kubernetes.io~empty-dir/NAME/ready  that an emptyDir is complete
//
// Invariants:
//
//   - The disk is the only memory: every step is idempotent and looks at what is there, so that a
//     restarted kubelet goes on where the last one was killed, and tears down what it never made.
//   - The files of configMap, secret, projected and downwardAPI volumes change all at once: they
//     are links into ..data, which is itself a link that is renamed.
//   - Nothing is removed from a file system that is not the pod's own: mounts go first, and a
//     directory that still has one is left alone with an error.
//   - A container cannot reach out of a volume by a symbolic link in a subPath: paths are
//     resolved beneath the volume by the kernel, and bound by descriptor.
//
// Volumes of CSI drivers are made by package csi; what is the same for all volumes is done here.
package volume
