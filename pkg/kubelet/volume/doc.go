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
//   - All state is on disk. Every step is idempotent and checks what exists, so a restarted kubelet
//     continues where the last one was killed. It also removes volumes that an earlier process
//     created.
//   - The files of configMap, secret, projected and downwardAPI volumes change atomically. Each is
//     a link into ..data. ..data is itself a link, and an update replaces it by a rename.
//   - Removing a volume never deletes data of a mounted file system: all mounts are removed first.
//     A directory that still has a mount is kept, and an error is returned.
//   - A container cannot use a symbolic link in a subPath to reach files outside the volume: the
//     kernel resolves the path beneath the volume, and the kubelet bind-mounts the resulting file
//     descriptor.
//
// Package csi creates volumes of CSI drivers. This package does the work that is common to all
// volumes.
package volume
