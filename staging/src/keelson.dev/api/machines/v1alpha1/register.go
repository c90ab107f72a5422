// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion returns the group and version of the kinds in this package.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: Version} }

// GroupVersionResource returns the resource of machines.
func GroupVersionResource() schema.GroupVersionResource { return GroupVersion().WithResource(Resource) }

// TypeMeta returns the TypeMeta of a Machine.
func TypeMeta() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: GroupVersion().String(), Kind: Kind}
}

// AddToScheme registers the kinds of this package in a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &Machine{}, &MachineList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}

// DeepCopy returns a copy that shares no memory with the machine.
func (in *Machine) DeepCopy() *Machine {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status = *in.Status.DeepCopy()
	return &out
}

// DeepCopy returns a copy that shares no memory with the status.
func (in *MachineStatus) DeepCopy() *MachineStatus {
	out := *in
	out.Releases = slices.Clone(in.Releases)
	out.Heartbeat = in.Heartbeat.DeepCopy()
	out.Conditions = slices.Clone(in.Conditions) // a condition has no pointers that are changed in place
	return &out
}

// DeepCopyObject implements runtime.Object.
func (in *Machine) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (in *MachineList) DeepCopyObject() runtime.Object {
	out := *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = slices.Clone(in.Items)
	for i := range out.Items {
		out.Items[i] = *in.Items[i].DeepCopy()
	}
	return &out
}
