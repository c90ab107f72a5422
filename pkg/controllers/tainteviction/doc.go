// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tainteviction contains the two controllers that delete pods because of NoExecute taints:
//
//   - The controller of nodes deletes pods that do not tolerate a taint of their node.
//   - The controller of devices deletes pods that use devices with a taint which their ResourceClaims do
//     not tolerate. Taints come from the driver of a device and from DeviceTaintRules, if the feature
//     DRADeviceTaintRules is on. The condition EvictionInProgress of a rule says how many pods still
//     have to be deleted because of the rule.
//
// A pod is deleted at once or, if a toleration has a time limit, when this time has passed. Of several
// taints, the one whose time ends first counts.
//
// The time of a node's taint begins when the taint was added to the node, or when the pod was bound to
// the node if that was later. If the taint contains no time, it begins when this process first saw the
// taint, so it begins again after a restart. The time of a device's taint begins when the taint was
// added.
package tainteviction
