// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package attachdetach attaches volumes to the nodes of the pods that use them, and detaches them
// from nodes where no pod uses them. It creates and deletes VolumeAttachments, which the attachers
// of CSI drivers (programs that run next to the drivers) carry out, and maintains
// status.volumesAttached of nodes.
//
// The function planNode decides what to do for a node. It does no I/O.
//
// A volume that only one node may use is not attached to a second node while an attachment to the
// first one exists or was just created. To ensure this, only one node is synced at a time.
//
// A volume is not detached while the node's status reports it as in use. There are two exceptions:
// the operator marked the node as out of service; or the node is not ready and no pod has needed the
// volume for six minutes. Options.KeepAttached turns the second exception off. Before a volume is
// detached, it is removed from volumesAttached by a write that fails if the node's status changed
// meanwhile. So a kubelet that is about to use the volume sees that the volume is no longer attached.
package attachdetach
