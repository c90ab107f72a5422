// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
)

// referenceRecorder stores the object of the last event.
type referenceRecorder struct {
	record.EventRecorder
	last v1.ObjectReference
}

func (r *referenceRecorder) Event(object apiruntime.Object, _, _, _ string) {
	r.last = *object.(*v1.ObjectReference)
}

// TestNodeEventReference checks that events of the node have the UID of the Node object once it is known.
func TestNodeEventReference(t *testing.T) {
	var node *v1.Node
	r := &referenceRecorder{}
	e := &events{recorder: r, name: "n1", current: func() *v1.Node { return node }}
	want := v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: "n1"}
	if e.node("Reason", "message"); r.last != want {
		t.Errorf("before the node is known: %+v", r.last)
	}
	node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u"}}
	want.UID = "u"
	if e.node("Reason", "message"); r.last != want {
		t.Errorf("got %+v, want %+v", r.last, want)
	}
}
