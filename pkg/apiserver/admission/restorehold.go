// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"keelson.dev/apiserver/store"
	"keelson.dev/keelson/pkg/apiserver/nodeauth"
	"keelson.dev/keelson/pkg/restorehold"
)

// restoreHold guards the labels of package restorehold. While the cluster waits for a node after a
// restore, the plugin holds new pods of StatefulSets, marks new nodes as unreported, and rejects writes
// that would let a pod start too early. A kubelet may change these labels only to report its own node.
type restoreHold struct {
	*admission.Handler
	marks *nodeauth.Marks
	nodes func() store.Reader
}

func newRestoreHold(deps Deps) (admission.Interface, error) {
	p := &restoreHold{admission.NewHandler(admission.Create, admission.Update, admission.Delete), deps.Marks, deps.Nodes}
	p.SetReadyFunc(deps.Marks.Synced)
	return p, nil
}

// resources returns the resources with which the plugin deals.
func (*restoreHold) resources() []schema.GroupResource {
	return []schema.GroupResource{corev1.Resource("pods"), corev1.Resource("nodes")}
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
func (p *restoreHold) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	switch a.GetResource().GroupResource() {
	case corev1.Resource("pods"):
		return p.pod(ctx, a)
	case corev1.Resource("nodes"):
		return p.node(a)
	}
	return nil
}

// pod rejects the end of a hold, and pods that are not held, while the cluster waits for a node.
func (p *restoreHold) pod(ctx context.Context, a admission.Attributes) error {
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
	if waits, err := p.stillWaits(ctx, waiting); err != nil || !waits {
		return err
	}
	return forbid(a, "the label %s cannot be missing: %s", restorehold.Held, restorehold.Message(waiting))
}

// stillWaits reports whether the cluster waits for one of the nodes according to the store. The
// controller that releases pods may have seen the last report earlier than the marks.
func (p *restoreHold) stillWaits(ctx context.Context, nodes []*corev1.Node) (bool, error) {
	for _, n := range nodes {
		stored, err := p.nodes().Get(ctx, n.Name, "")
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return false, err
		case restorehold.Waiting(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: stored.Labels}}):
			return true, nil
		}
	}
	return false, nil
}

// node rejects changes of marks by kubelets, except reports, fences without the label unreported, and the
// deletion of a node for which the cluster waits.
func (p *restoreHold) node(a admission.Attributes) error {
	old, _ := a.GetOldObject().(*corev1.Node)
	node, ok := a.GetObject().(*corev1.Node)
	if ok && halfFenced(node) && (old == nil || !halfFenced(old)) {
		return forbid(a, "a fenced node needs the label %s; \"ctl node unfence %s\" ends the fence",
			restorehold.Unreported, node.Name)
	}
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

// halfFenced reports whether a node has only one of the two labels of fenced nodes. Then the marks that
// servers follow lack it.
func halfFenced(n *corev1.Node) bool { return restorehold.IsFenced(n) && !restorehold.IsUnreported(n) }

// marks are the marks of a node: values of labels, or "".
type marks struct{ unreported, fenced string }

func marksOf(n *corev1.Node) marks {
	return marks{n.Labels[restorehold.Unreported], n.Labels[restorehold.Fenced]}
}
