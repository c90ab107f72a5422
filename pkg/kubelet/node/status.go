// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"maps"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// status computes the node's status. It keeps fields that other programs have written into the old
// status.
func (n *Node) status(ctx context.Context, old *v1.Node) v1.NodeStatus {
	old = old.DeepCopy()
	s := *old.Status.DeepCopy()
	s.Capacity, s.Allocatable = n.cfg.Capacity.DeepCopy(), n.cfg.Allocatable.DeepCopy()
	capacity, allocatable, gone := n.cfg.Devices()
	maps.Copy(s.Capacity, capacity)
	maps.Copy(s.Allocatable, allocatable)
	for _, name := range gone {
		delete(old.Status.Capacity, name)
	}
	// As in Kubernetes, resources that other programs have added to the capacity are kept, and all
	// of their amount is allocatable.
	for name, q := range old.Status.Capacity {
		if _, own := s.Capacity[name]; !own {
			s.Capacity[name], s.Allocatable[name] = q, q
		}
	}
	s.Addresses = n.addresses()
	s.DaemonEndpoints.KubeletEndpoint.Port = n.cfg.Port
	s.NodeInfo = n.cfg.Info
	s.NodeInfo.ContainerRuntimeVersion = n.cfg.RuntimeVersion()
	s.RuntimeHandlers = n.cfg.Handlers()
	s.Features = n.cfg.Features()
	s.DeclaredFeatures = n.cfg.Declared
	s.Images = n.cfg.Images(ctx)
	if n.cfg.VolumesInUse != nil {
		s.VolumesInUse = n.cfg.VolumesInUse()
	}
	n.conditions(&s)
	return s
}

func (n *Node) addresses() []v1.NodeAddress {
	var out []v1.NodeAddress
	for _, ip := range n.cfg.IPs {
		if _, err := netip.ParseAddr(ip); err == nil {
			out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
		}
	}
	return append(out, v1.NodeAddress{Type: v1.NodeHostName, Address: n.id.Hostname})
}

// pressure is a pressure condition, with Kubernetes' reasons and messages.
type pressure struct {
	condition   v1.NodeConditionType
	with        string // the condition's reason if it is true
	without     string // the condition's reason if it is false
	withoutText string
	withText    string
}

func pressures() []pressure {
	return []pressure{
		{v1.NodeMemoryPressure, "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory",
			"kubelet has sufficient memory available", "kubelet has insufficient memory available"},
		{v1.NodeDiskPressure, "KubeletHasDiskPressure", "KubeletHasNoDiskPressure",
			"kubelet has no disk pressure", "kubelet has disk pressure"},
		{v1.NodePIDPressure, "KubeletHasInsufficientPID", "KubeletHasSufficientPID",
			"kubelet has sufficient PID available", "kubelet has insufficient PID available"},
	}
}

func (n *Node) conditions(s *v1.NodeStatus) {
	holding := n.cfg.Pressures()
	for _, p := range pressures() {
		c := v1.NodeCondition{Type: p.condition, Status: v1.ConditionFalse, Reason: p.without, Message: p.withoutText}
		if _, holds := holding[p.condition]; holds {
			c.Status, c.Reason, c.Message = v1.ConditionTrue, p.with, p.withText
		}
		n.set(s, c)
	}
	// As in Kubernetes, Ready is the last condition.
	ready := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady",
		Message: "kubelet is posting ready status"}
	if err := n.cfg.Ready(); err != nil {
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, "KubeletNotReady", err.Error()
	}
	n.set(s, ready)
}

func (n *Node) set(s *v1.NodeStatus, c v1.NodeCondition) {
	now := metav1.NewTime(n.cfg.Clock.Now())
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	for i := range s.Conditions {
		if s.Conditions[i].Type != c.Type {
			continue
		}
		if s.Conditions[i].Status == c.Status {
			c.LastTransitionTime = s.Conditions[i].LastTransitionTime
		}
		s.Conditions[i] = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}
