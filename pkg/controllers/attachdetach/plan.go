// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package attachdetach

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// patience is how long a volume that an unhealthy node reports as in use stays attached after no
// pod needs it any more.
const patience = 6 * time.Minute

// attacherPatience is how long an attacher may take before events report that it does not respond.
const attacherPatience = 2 * time.Minute

// target identifies a volume by the name of its CSI driver and the driver's handle of the volume.
type target struct{ driver, handle string }

// managed is the annotation of nodes whose kubelets rely on this controller to attach volumes.
const managed = "volumes.kubernetes.io/controller-managed-attach-detach"

// prefix is the start of the names of CSI volumes in the status of nodes.
const prefix = "kubernetes.io/csi/"

// name returns the volume's name as it appears in the status of nodes.
func (t target) name() v1.UniqueVolumeName {
	return v1.UniqueVolumeName(prefix + t.driver + "^" + t.handle)
}

// attachment returns the name of the VolumeAttachment of the volume to a node.
func (t target) attachment(node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(t.handle+t.driver+node)))
}

// parse parses the name of a volume in the status of a node. It returns false if the name is not
// that of a CSI volume.
func parse(name v1.UniqueVolumeName) (target, bool) {
	rest, ok := strings.CutPrefix(string(name), prefix)
	driver, handle, found := strings.Cut(rest, "^")
	return target{driver, handle}, ok && found
}

// wanted is a volume that pods on a node use and that must be attached.
type wanted struct {
	target target
	volume *v1.PersistentVolume
	pods   []*v1.Pod
	// elsewhere are the other nodes that the volume is attached to, if only one node may use it. It
	// must be detached from them first.
	elsewhere []string
}

// exclusive reports whether a volume may be attached to only one node at a time.
func exclusive(v *v1.PersistentVolume) bool {
	return len(v.Spec.AccessModes) > 0 &&
		!slices.ContainsFunc(v.Spec.AccessModes, func(m v1.PersistentVolumeAccessMode) bool {
			return m == v1.ReadWriteMany || m == v1.ReadOnlyMany
		})
}

// nodeFacts are the facts about a node from which planNode decides what to do.
type nodeFacts struct {
	name string
	// node is nil if the node does not exist. inUse are the volumes that the node reports as in
	// use, or that it reported last before it was deleted.
	node  *v1.Node
	inUse []v1.UniqueVolumeName
	// wanted are the volumes of the node's pods.
	wanted []wanted
	// attachments are the node's attachments, by name.
	attachments map[string]*storagev1.VolumeAttachment
	// known are the volumes that the node's attachments refer to, if their PersistentVolumes exist or
	// did so at an earlier sync. Together with the volumes in the node's status, they are the volumes whose attachments
	// the method unwanted examines.
	known []target
	// since is the time at which an earlier sync first found that no pod needs a volume any more.
	since map[v1.UniqueVolumeName]time.Time
	// keep means that volumes in use stay attached no matter how long the node is unhealthy
	// (Options.KeepAttached).
	keep bool
}

// nodePlan is what to do for a node. planNode returns it.
type nodePlan struct {
	// attach are volumes to attach now. blocked are volumes that must be detached from other nodes
	// first.
	attach, blocked []wanted
	// failed are volumes whose attachments have an error in their status.
	failed []wanted
	// unanswered are volumes whose attachments exist, but whose attacher has not responded in time.
	unanswered []wanted
	// attached is the new value of volumesAttached in the node's status.
	attached []v1.UniqueVolumeName
	// detach are attachments to delete after volumesAttached in the node's status was written.
	detach []*storagev1.VolumeAttachment
	// The field waiting has the volumes that no pod needs but that the node reports as in use. The
	// field again is the time until the next sync of the node, or 0 if none is needed.
	waiting []v1.UniqueVolumeName
	again   time.Duration
}

func planNode(f nodeFacts, now time.Time) nodePlan {
	var p nodePlan
	wants := map[v1.UniqueVolumeName]bool{}
	for _, w := range f.wanted {
		name := w.target.name()
		wants[name] = true
		a := f.attachments[w.target.attachment(f.name)]
		made := a != nil && a.ResourceVersion != ""
		switch {
		case !made && (f.node == nil || f.node.Annotations[managed] != "true"):
			// The node does not exist, or its kubelet attaches volumes itself, so do not attach this
			// volume.
		case !made && len(w.elsewhere) > 0:
			p.blocked = append(p.blocked, w)
		case !made:
			p.attach = append(p.attach, w)
		case a.DeletionTimestamp == nil && a.Status.Attached:
			p.attached = append(p.attached, name)
		case a.Status.AttachError != nil:
			p.failed = append(p.failed, w)
		case a.DeletionTimestamp == nil:
			wait := a.CreationTimestamp.Add(attacherPatience).Sub(now)
			if wait <= 0 {
				p.unanswered = append(p.unanswered, w)
				wait = attacherPatience
			}
			p.soon(wait)
		}
	}
	for name, a := range f.unwanted(wants) {
		if wait := f.wait(name, now); wait > 0 && a.DeletionTimestamp == nil {
			p.waiting = append(p.waiting, name)
			if a.Status.Attached {
				p.attached = append(p.attached, name)
			}
			p.soon(wait)
			continue
		}
		if a.DeletionTimestamp == nil {
			p.detach = append(p.detach, a)
		}
	}
	slices.Sort(p.attached)
	slices.Sort(p.waiting)
	slices.SortFunc(p.detach, func(a, b *storagev1.VolumeAttachment) int { return strings.Compare(a.Name, b.Name) })
	return p
}

// soon makes the controller sync the node again after wait, or earlier if soon was called with a
// shorter time.
func (p *nodePlan) soon(wait time.Duration) {
	if p.again == 0 || wait < p.again {
		p.again = wait
	}
}

// unwanted returns the node's attachments that belong to this controller and that no pod needs, by
// volume name. An attachment belongs to this controller if its name is derived from the volume and
// the node as in target.attachment.
func (f nodeFacts) unwanted(wants map[v1.UniqueVolumeName]bool) map[v1.UniqueVolumeName]*storagev1.VolumeAttachment {
	out := map[v1.UniqueVolumeName]*storagev1.VolumeAttachment{}
	look := func(t target) {
		if a := f.attachments[t.attachment(f.name)]; a != nil && !wants[t.name()] {
			out[t.name()] = a
		}
	}
	for _, t := range f.known {
		look(t)
	}
	names := slices.Clone(f.inUse)
	if f.node != nil {
		for _, a := range f.node.Status.VolumesAttached {
			names = append(names, a.Name)
		}
	}
	for _, name := range names {
		if t, ok := parse(name); ok {
			look(t)
		}
	}
	return out
}

// wait returns how long to wait before a volume that no pod needs may be detached, or 0 if it may
// be detached now.
func (f nodeFacts) wait(name v1.UniqueVolumeName, now time.Time) time.Duration {
	if !slices.Contains(f.inUse, name) || f.node != nil && outOfService(f.node) {
		return 0
	}
	left := patience
	if since, ok := f.since[name]; ok {
		left = since.Add(patience).Sub(now)
	}
	if left <= 0 && (f.keep || f.node != nil && ready(f.node)) {
		// Check again later; the node is also synced when the kubelet reports that the volume is
		// not in use.
		return patience
	}
	return left
}

func outOfService(n *v1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == v1.TaintNodeOutOfService })
}

func ready(n *v1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}

// ended reports whether a pod has ended, or is being deleted and none of its containers runs.
func ended(pod *v1.Pod) bool {
	if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return true
	}
	return pod.DeletionTimestamp != nil &&
		!slices.ContainsFunc(pod.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
			return c.State.Terminated == nil && c.State.Waiting == nil
		})
}
