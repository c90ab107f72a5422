// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// recordChanges records Kubernetes' events about the differences between two statuses of the node.
func (n *Node) recordChanges(old, now *v1.NodeStatus) {
	if before, after := old.NodeInfo.BootID, now.NodeInfo.BootID; before != "" && before != after {
		n.cfg.Event(v1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", n.id.Name, after))
	}
	before := map[v1.NodeConditionType]v1.ConditionStatus{v1.NodeReady: ""}
	for _, p := range pressures() {
		before[p.condition] = v1.ConditionUnknown
	}
	for i := range old.Conditions {
		if _, own := before[old.Conditions[i].Type]; own {
			before[old.Conditions[i].Type] = old.Conditions[i].Status
		}
	}
	for i := range now.Conditions {
		c := &now.Conditions[i]
		// A new node has no event about Ready.
		if status, own := before[c.Type]; own && status != "" && status != c.Status {
			n.recordState("Node" + strings.TrimPrefix(c.Reason, "Kubelet"))
		}
	}
}

// recordSchedulable records an event if the node was cordoned or uncordoned.
func (n *Node) recordSchedulable(unschedulable bool) {
	if unschedulable == n.unschedulable {
		return
	}
	n.unschedulable = unschedulable
	if unschedulable {
		n.recordState("NodeNotSchedulable")
		return
	}
	n.recordState("NodeSchedulable")
}

// recordState records an event that names the node's present state.
func (n *Node) recordState(state string) {
	n.cfg.Event(v1.EventTypeNormal, state, fmt.Sprintf("Node %s status is now: %s", n.id.Name, state))
}
