// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volume creates the volumes of the node's pods, updates their content and removes them.
//
// Paths are the same as in Kubernetes:
//
//	RootDir/pods/UID/volumes/kubernetes.io~PLUGIN/NAME           the volume, a directory or a mount
//	RootDir/pods/UID/volume-subpaths/NAME/CONTAINER/INDEX        a bind mount of a subPath
//	RootDir/pods/UID/plugins/kubernetes.io~empty-dir/NAME/ready  marks a complete emptyDir
//
// Invariants:
//
//   - All state is on disk. Every step is idempotent and checks what exists, so that a restarted
//     kubelet continues where the last one was killed, and removes volumes that it did not create.
//   - The files of configMap, secret, projected and downwardAPI volumes change atomically: they are
//     links into ..data, which is itself a link that is renamed.
//   - Nothing is removed from a file system that is not the pod's own: mounts are removed first,
//     and a directory that still has a mount is kept and reported as an error.
//   - A container cannot reach out of a volume by a symbolic link in a subPath: paths are resolved
//     beneath the volume by the kernel, and bound by descriptor.
//
// Package csi creates volumes of CSI drivers. This package does the work that is common to all
// volumes.
package volume
