// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// group is the API group of the operator's custom resource.
const group = "envtest.example.com"

// Greeting is the operator's custom resource: a text that the operator copies into a ConfigMap.
type Greeting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GreetingSpec   `json:"spec"`
	Status GreetingStatus `json:"status,omitempty"`
}

// GreetingSpec is the desired state of a Greeting.
type GreetingSpec struct {
	Text string `json:"text,omitempty"`
}

// GreetingStatus is the observed state of a Greeting.
type GreetingStatus struct {
	Published string `json:"published,omitempty"`
}

// GreetingList is a list of greetings.
type GreetingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Greeting `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (g *Greeting) DeepCopyObject() runtime.Object {
	out := *g
	g.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *GreetingList) DeepCopyObject() runtime.Object {
	out := &GreetingList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Greeting))
	}
	return out
}

// addGreetings registers the kind Greeting in a scheme.
func addGreetings(s *runtime.Scheme) {
	gv := schema.GroupVersion{Group: group, Version: "v1"}
	s.AddKnownTypes(gv, &Greeting{}, &GreetingList{})
	metav1.AddToGroupVersion(s, gv)
}
