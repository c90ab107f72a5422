// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csidrivers does for storage drivers what sidecars do elsewhere: volumes are
// made for claims and deleted, attached and detached, grown, and changed. It does so for those
// drivers whose CSIDriver has the label storage.keelson.dev/control with the value
// kubelet. It asks them through the kubelet of a node where they are registered, so
// that such a driver is nothing but one pod for each node.
//
// What is to be called is known by the API alone, and every call may be repeated:
// whoever is killed at whatever moment, the next one finishes.
//
//   - A claim has a finalizer while a volume is made for it, so that no volume is left
//     without an object.
//   - A volume with the reclaim policy Delete has a finalizer until the driver has deleted
//     its storage. A volume that an administrator created gets it when it is bound.
//   - An attachment and its volume have the finalizers that attachers set, until the
//     driver has detached it.
//   - A claim's status tells how far its growth has come, and the change of its attributes, as resizers do.
//   - For drivers that want it (storageCapacity of the CSIDriver), objects in kube-system
//     tell the scheduler how much room there is for volumes of classes that wait for a
//     pod. They are as old as a minute, and a driver that has less has the last word.
//
// It does not serve drivers whose calls need secrets, and makes no snapshots: it reads
// no Secrets at all. Volumes are made from snapshots that somebody else made.
package csidrivers
