// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package attachdetach has volumes attached to the nodes of the pods that use them,
// and detached from nodes where no pod does: it makes and deletes VolumeAttachments,
// which the attachers of CSI drivers work off, and keeps status.volumesAttached of nodes.
//
// What is to be done for a node is decided by planNode, which is pure.
//
// A volume that only one node may have is not asked to be attached to a second one
// while there is an attachment to the first, or one was just made: keys are synced
// one at a time.
//
// A volume is not detached while the node's status says that it is in use there,
// unless the operator has said that the node is out of service, or the node has been
// unwell for six minutes. Before it is detached it is taken out of volumesAttached,
// by a write that fails if the node has said anything since it was looked at: a
// kubelet that begins to use the volume in that moment sees that it may not.
package attachdetach
