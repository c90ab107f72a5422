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

// patience is for how long a volume is not detached from a node that is unwell and
// has it in use.
const patience = 6 * time.Minute

// attacherPatience is for how long an attacher is waited for before users are told that it says nothing.
const attacherPatience = 2 * time.Minute

// target is a volume in the words of its driver.
type target struct{ driver, handle string }

// managed is the annotation of nodes whose kubelets leave attaching to this controller.
const managed = "volumes.kubernetes.io/controller-managed-attach-detach"

// prefix begins the names of CSI volumes in the status of nodes.
const prefix = "kubernetes.io/csi/"

// name is the volume's name in the status of nodes.
func (t target) name() v1.UniqueVolumeName {
	return v1.UniqueVolumeName(prefix + t.driver + "^" + t.handle)
}

// attachment is the name of the VolumeAttachment of the volume and a node.
func (t target) attachment(node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(t.handle+t.driver+node)))
}

// parse reads a name of a volume in the status of a node.
func parse(name v1.UniqueVolumeName) (target, bool) {
	rest, ok := strings.CutPrefix(string(name), prefix)
	driver, handle, found := strings.Cut(rest, "^")
	return target{driver, handle}, ok && found
}

// wanted is a volume that pods on a node use.
type wanted struct {
	target target
	volume *v1.PersistentVolume
	pods   []*v1.Pod
	// elsewhere are other nodes that have the volume, which this one must wait for.
	elsewhere []string
}

// exclusive tells whether only one node may have a volume.
func exclusive(v *v1.PersistentVolume) bool {
	return len(v.Spec.AccessModes) > 0 && !slices.ContainsFunc(v.Spec.AccessModes, func(m v1.PersistentVolumeAccessMode) bool {
		return m == v1.ReadWriteMany || m == v1.ReadOnlyMany
	})
}

// nodeFacts is what is known about a node.
type nodeFacts struct {
	name string
	// node is nil if there is none; inUse is then what the last one of the name said.
	node  *v1.Node
	inUse []v1.UniqueVolumeName
	// wanted are the volumes of the node's pods.
	wanted []wanted
	// attachments are those of the node, by their names.
	attachments map[string]*storagev1.VolumeAttachment
	// known are volumes that the node's attachments may be of, besides those wanted
	// and those in the node's status.
	known []target
	// since is when a volume was first found not to be wanted any more.
	since map[v1.UniqueVolumeName]time.Time
	// keep has volumes in use stay attached for however long a node is unwell.
	keep bool
}

// nodePlan is what is to be done for a node.
type nodePlan struct {
	// attach are to be attached, blocked have to wait for other nodes.
	attach, blocked []wanted
	// failed could not be attached so far; why is in their attachments.
	failed []wanted
	// unanswered have been asked for, and no attacher says anything.
	unanswered []wanted
	// attached is what the status is to list.
	attached []v1.UniqueVolumeName
	// detach are attachments to be deleted once the status says so.
	detach []*storagev1.VolumeAttachment
	// waiting are volumes that are not wanted, but in use; again is when to look at the node again.
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
			// Nobody is there to use it, or to be told of it.
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

// soon has the node looked at again after a while.
func (p *nodePlan) soon(wait time.Duration) {
	if p.again == 0 || wait < p.again {
		p.again = wait
	}
}

// unwanted are the node's attachments that are known to be this controller's, by
// their names, and that no pod needs.
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

// wait is for how long a volume must not be detached yet.
func (f nodeFacts) wait(name v1.UniqueVolumeName, now time.Time) time.Duration {
	if !slices.Contains(f.inUse, name) || f.node != nil && outOfService(f.node) {
		return 0
	}
	left := patience
	if since, ok := f.since[name]; ok {
		left = since.Add(patience).Sub(now)
	}
	if left <= 0 && (f.keep || f.node != nil && ready(f.node)) {
		return patience // it is the kubelet's to say when it has let go
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

// ended tells whether nothing of a pod runs any more.
func ended(pod *v1.Pod) bool {
	if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return true
	}
	return pod.DeletionTimestamp != nil && !slices.ContainsFunc(pod.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Terminated == nil && c.State.Waiting == nil
	})
}
