// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restorehold defines the labels by which no identity of a StatefulSet runs twice after the
// cluster's store was restored, and the rules for them. docs/decisions/0036-restore.md explains why.
//
// A restored store does not know what has happened since its backup. A node may run the pod db-0 that
// only the lost history placed there. So:
//
//   - The restore marks all nodes as unreported (package mark). The cluster waits for such a node until
//     its kubelet has ended the pods that the store does not know, or an administrator has fenced it.
//   - While the cluster waits for a node, pods that a StatefulSet controls are held: the restore marks
//     those in the store, and the API server those that are created.
//   - No scheduler binds a held pod, and no kubelet starts one. A pod with a running container goes on.
//   - When the cluster waits for no node, the pods are released.
//
// The functions have no side effects. Admission in the API server, the scheduler, the kubelet and a
// controller use them.
package restorehold

import (
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The labels. Each value is a number that grows: the epoch of the restore, or a later time.
const (
	// Unreported is on a Node until its kubelet has ended the pods that the store does not know.
	Unreported = "machines.keelson.dev/unreported"
	// Fenced is on a Node whose machine is off, as an administrator promises. The API server denies the
	// writes of its kubelet. A fenced node is also unreported, so that its kubelet has to report after
	// the end of the fence.
	Fenced = "machines.keelson.dev/fenced"
	// Held is on a Pod that must not start yet.
	Held = "machines.keelson.dev/held"
)

// Placeholder is an annotation of a Node that a restore has created for a machine that joined after the
// backup. The Node lacks what a kubelet writes at its registration.
const Placeholder = "machines.keelson.dev/placeholder"

// Waiting reports whether the cluster waits for the node.
func Waiting(node *v1.Node) bool { return IsUnreported(node) && !IsFenced(node) }

// IsUnreported reports whether the node has to report.
func IsUnreported(node *v1.Node) bool { return has(node, Unreported) }

// IsFenced reports whether the node is fenced.
func IsFenced(node *v1.Node) bool { return has(node, Fenced) }

// Fence marks a node as fenced at the time now. The taint is Kubernetes' promise that a machine is off:
// the cluster deletes the node's pods and detaches its volumes once the node is not ready.
func Fence(node *v1.Node, now time.Time) {
	if IsFenced(node) {
		return
	}
	value := Next(now, node.Labels[Unreported])
	metav1.SetMetaDataLabel(&node.ObjectMeta, Unreported, value)
	metav1.SetMetaDataLabel(&node.ObjectMeta, Fenced, value)
	node.Spec.Taints = append(withoutTaint(node.Spec.Taints),
		v1.Taint{Key: v1.TaintNodeOutOfService, Value: taintValue, Effect: v1.TaintEffectNoExecute})
}

// EndFence ends the fence of a node. The node remains unreported.
func EndFence(node *v1.Node) {
	delete(node.Labels, Fenced)
	node.Spec.Taints = withoutTaint(node.Spec.Taints)
}

// taintValue is the value of the taint of fenced nodes. Other taints with the same key are not ours.
const taintValue = "fenced"

func withoutTaint(taints []v1.Taint) []v1.Taint {
	return slices.DeleteFunc(taints, func(t v1.Taint) bool {
		return t.Key == v1.TaintNodeOutOfService && t.Value == taintValue && t.Effect == v1.TaintEffectNoExecute
	})
}

// IsHeld reports whether the pod is held.
func IsHeld(pod *v1.Pod) bool { return has(pod, Held) }

func has(obj metav1.Object, label string) bool {
	_, ok := obj.GetLabels()[label]
	return ok
}

// HasIdentity reports whether the pod has the identity of a StatefulSet, which at most one running pod
// may have.
func HasIdentity(pod *v1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "StatefulSet" {
		return false
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && gv.Group == appsv1.GroupName
}

// MayRun reports whether a kubelet may start containers of the pod. alive reports whether a container of
// the pod has run on the node while the pod was held: then nothing can have replaced the pod. A sandbox
// or a container that has exited does not prove that, because the pod may have failed, and its
// StatefulSet may have replaced it.
func MayRun(pod *v1.Pod, alive bool) bool { return !IsHeld(pod) || alive }

// Value returns the value of a label for an epoch.
func Value(epoch int64) string { return strconv.FormatInt(epoch, 10) }

// Next returns a value that is higher than old, the value of a label at the time now. old may be empty.
func Next(now time.Time, old string) string {
	last, err := strconv.ParseInt(old, 10, 64)
	if err != nil {
		last = 0
	}
	return Value(max(now.Unix(), last+1))
}

// WaitingOf returns the nodes for which the cluster waits.
func WaitingOf(nodes []*v1.Node) []*v1.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *v1.Node) bool { return !Waiting(n) })
}

// maxNames is the maximum number of nodes that a message names.
const maxNames = 5

// Message says for which nodes a held pod waits. It has no number of nodes, so that it changes seldom
// while many nodes report.
func Message(waiting []*v1.Node) string {
	names := make([]string, 0, len(waiting))
	for _, n := range waiting {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	more := ""
	if len(names) > maxNames {
		names, more = names[:maxNames], " and more"
	}
	return "the pod starts when these nodes have reported after the restore of the cluster, or are fenced: " +
		strings.Join(names, ", ") + more
}
