// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package site has the API types of the operator. A Site is a set of identical web servers. The two
// versions of the kind use different field names.
package site

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

// Group is the API group of both versions.
const Group = "web.example.com"

// AddToScheme registers both versions in a scheme.
func AddToScheme(s *runtime.Scheme) {
	for version, kinds := range map[string]map[string]runtime.Object{
		"v1":      {"Site": &Site{}, "SiteList": &SiteList{}},
		"v1beta1": {"Site": &SiteV1beta1{}, "SiteList": &SiteV1beta1List{}},
	} {
		gv := schema.GroupVersion{Group: Group, Version: version}
		for kind, obj := range kinds {
			s.AddKnownTypeWithName(gv.WithKind(kind), obj)
		}
		metav1.AddToGroupVersion(s, gv)
	}
}

// Site is version v1 of the kind, which is the storage version.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitempty"`
}

// Spec is the desired state of a Site.
type Spec struct {
	Replicas *int32 `json:"replicas,omitempty"`
	Message  string `json:"message,omitempty"`
}

// Status is the observed state of a Site.
type Status struct {
	Replicas   int32              `json:"replicas"`
	Ready      int32              `json:"ready"`
	Selector   string             `json:"selector,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SiteList is a list of sites.
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Site `json:"items"`
}

// SiteV1beta1 is version v1beta1 of the kind.
type SiteV1beta1 struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SpecV1beta1 `json:"spec"`
	Status Status      `json:"status,omitempty"`
}

// SpecV1beta1 has the same fields as Spec with other names.
type SpecV1beta1 struct {
	Size *int32 `json:"size,omitempty"`
	Text string `json:"text,omitempty"`
}

// SiteV1beta1List is a list of sites of version v1beta1.
type SiteV1beta1List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SiteV1beta1 `json:"items"`
}

// Hub marks v1 as the version to which controller-runtime converts the other versions.
func (*Site) Hub() {}

// ConvertTo converts s to v1.
func (s *SiteV1beta1) ConvertTo(hub conversion.Hub) error {
	to := hub.(*Site)
	to.ObjectMeta, to.Status = s.ObjectMeta, s.Status
	to.Spec = Spec{Replicas: s.Spec.Size, Message: s.Spec.Text}
	return nil
}

// ConvertFrom converts a v1 object into s.
func (s *SiteV1beta1) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*Site)
	s.ObjectMeta, s.Status = from.ObjectMeta, from.Status
	s.Spec = SpecV1beta1{Size: from.Spec.Replicas, Text: from.Spec.Message}
	return nil
}

// DeepCopyObject copies s.
func (s *Site) DeepCopyObject() runtime.Object { return deepCopy(s, &Site{}) }

// DeepCopyObject copies l.
func (l *SiteList) DeepCopyObject() runtime.Object { return deepCopy(l, &SiteList{}) }

// DeepCopyObject copies s.
func (s *SiteV1beta1) DeepCopyObject() runtime.Object { return deepCopy(s, &SiteV1beta1{}) }

// DeepCopyObject copies l.
func (l *SiteV1beta1List) DeepCopyObject() runtime.Object { return deepCopy(l, &SiteV1beta1List{}) }

// deepCopy converts its first argument to a map, and the map to its second argument. This is
// sufficient for such a small operator, so no code needs to be generated.
func deepCopy[T runtime.Object](from, to T) runtime.Object {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(m, to)
	}
	if err != nil {
		panic(err) // conversion of these types cannot fail
	}
	return to
}
