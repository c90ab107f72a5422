// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"keelson.dev/keelson/pkg/apiserver/nodeauth"
	"keelson.dev/keelson/pkg/restorehold"
)

// restoreHold guards the labels of package restorehold. While the cluster waits for a node after a
// restore, the plugin holds new pods of StatefulSets, marks new nodes as unreported, and rejects writes
// that would let a pod start too early. A kubelet may change these labels only to report its own node.
type restoreHold struct {
	*admission.Handler
	marks *nodeauth.Marks
}

func newRestoreHold(deps Deps) (admission.Interface, error) {
	p := &restoreHold{admission.NewHandler(admission.Create, admission.Update, admission.Delete), deps.Marks}
	p.SetReadyFunc(deps.Marks.Synced)
	return p, nil
}

var errMarksNotLoaded = errors.New("the marks of nodes have not been loaded yet")

// waiting returns the nodes for which the cluster waits.
func (p *restoreHold) waiting(a admission.Attributes) ([]*corev1.Node, error) {
	if !p.WaitForReady() {
		return nil, admission.NewForbidden(a, errMarksNotLoaded)
	}
	return p.marks.Waiting(), nil
}

// Admit implements admission.MutationInterface.
func (p *restoreHold) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" {
		return nil
	}
	switch obj := a.GetObject().(type) {
	case *corev1.Pod:
		if restorehold.HasIdentity(obj) && !restorehold.IsHeld(obj) {
			return p.mark(a, &obj.ObjectMeta, restorehold.Held)
		}
	case *corev1.Node:
		if name, isNode := nodeauth.Identity(a.GetUserInfo()); isNode && marksOf(obj) != (marks{}) {
			return forbid(a, "node %q is not allowed to set the labels %s and %s", name, restorehold.Unreported,
				restorehold.Fenced)
		}
		return p.mark(a, &obj.ObjectMeta, restorehold.Unreported)
	}
	return nil
}

// mark sets a label if the cluster waits for a node.
func (p *restoreHold) mark(a admission.Attributes, to *metav1.ObjectMeta, label string) error {
	waiting, err := p.waiting(a)
	if err != nil || len(waiting) == 0 {
		return err
	}
	metav1.SetMetaDataLabel(to, label, waiting[0].Labels[restorehold.Unreported])
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *restoreHold) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	switch a.GetResource().GroupResource() {
	case corev1.Resource("pods"):
		return p.pod(a)
	case corev1.Resource("nodes"):
		return p.node(a)
	}
	return nil
}

// pod rejects the end of a hold, and pods that are not held, while the cluster waits for a node.
func (p *restoreHold) pod(a admission.Attributes) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || restorehold.IsHeld(pod) {
		return nil
	}
	old, _ := a.GetOldObject().(*corev1.Pod)
	if old == nil && !restorehold.HasIdentity(pod) || old != nil && !restorehold.IsHeld(old) {
		return nil
	}
	waiting, err := p.waiting(a)
	if err != nil || len(waiting) == 0 {
		return err
	}
	return forbid(a, "the label %s cannot be missing: %s", restorehold.Held, restorehold.Message(waiting))
}

// node rejects changes of marks by kubelets, except reports, and the deletion of a node for which the
// cluster waits.
func (p *restoreHold) node(a admission.Attributes) error {
	old, _ := a.GetOldObject().(*corev1.Node)
	if old == nil {
		return nil
	}
	if a.GetOperation() == admission.Delete {
		if restorehold.Waiting(old) {
			return forbid(a, "the node has not reported its pods after the restore of the cluster; if its machine is off, "+
				"run \"ctl node fence %s\" first", old.Name)
		}
		return nil
	}
	node, ok := a.GetObject().(*corev1.Node)
	name, isNode := nodeauth.Identity(a.GetUserInfo())
	if !ok || !isNode {
		return nil
	}
	before, after := marksOf(old), marksOf(node)
	if after == before || after == (marks{}) && before.fenced == "" {
		return nil
	}
	return forbid(a, "node %q may only remove the label %s, and only if it is not fenced", name, restorehold.Unreported)
}

// marks are the marks of a node: values of labels, or "".
type marks struct{ unreported, fenced string }

func marksOf(n *corev1.Node) marks {
	return marks{n.Labels[restorehold.Unreported], n.Labels[restorehold.Fenced]}
}
