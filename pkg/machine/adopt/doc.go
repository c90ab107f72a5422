// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adopt replaces the control plane that kubeadm has made on a machine by Keelson's, in place, and
// brings it back.
//
// kubeadm's control plane consists of static pods: the kubelet runs what the manifests in
// /etc/kubernetes/manifests say. [Read] reads these manifests. [Pods.Programs] returns the flags with which
// Keelson's programs do the same with the same certificates and the same store. An [Adoption] moves the
// manifests aside, so that the kubelet ends the static pods, and starts Keelson's programs; or the reverse.
//
// Invariants:
//
//   - The directory [Paths.Parked] exists from the first change until the last one is undone. It has the
//     manifests and the state of the adoption.
//   - Keelson's programs have no flags, and so do not start, while the kubelet has a manifest. So at no time,
//     also not after a power failure, do two programs use the store.
//   - No manifest is replaced or changed: it is moved to a place that has none. See [Paths.Conflict].
//   - Keelson's etcd does not start while a process of a static pod runs. See [Processes].
//   - Both directions can be interrupted at any time, and repeated.
//   - An adoption whose programs do not become healthy is undone.
//   - The way back needs the state and the manifests as they are, and reads no manifest.
//
// The package changes no object of the cluster. What it needs of systemd and of the API is in [Machine].
package adopt
