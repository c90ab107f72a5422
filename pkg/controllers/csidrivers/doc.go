// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csidrivers does the work of Kubernetes' CSI sidecar containers: it provisions volumes for
// claims and deletes them, attaches and detaches them, expands them, and changes their attributes.
// It does so for drivers whose CSIDriver object has the label storage.keelson.dev/control=kubelet.
// It calls a driver through the kubelet of a node where the driver is registered, so a driver needs
// only one pod per node.
//
// All state is in the objects in the API, and every call to a driver can be repeated. If the
// controller is killed at any time, the next process continues:
//
//   - A claim has a finalizer while a volume is being provisioned for it, so that no volume is
//     left without a PersistentVolume object.
//   - A volume with the reclaim policy Delete has a finalizer until the driver has deleted its
//     storage. A volume that an administrator created gets the finalizer when it is bound.
//   - An attachment and its volume have the finalizers of the external attacher until the driver
//     has detached the volume.
//   - A claim's status has the progress of its expansion and of the change of its attributes, in
//     the form that the external resizer uses.
//   - If a CSIDriver has storageCapacity set, CSIStorageCapacity objects in kube-system show the
//     scheduler the capacity for classes with delayed binding. They may be up to a minute out of
//     date; if the driver has less, provisioning fails and the scheduler selects another node.
//
// The controller does not support drivers whose calls need secrets: it does not read Secrets. It
// creates no snapshots, but it provisions volumes from existing snapshots.
package csidrivers
