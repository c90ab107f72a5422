// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"keelson.dev/keelson/pkg/follow"
)

// slim removes the fields that no plugin reads from an object before a cache stores it. Pods are
// not handled here: package intake decodes them without such fields. With extenders, slim is not
// used, because extenders are sent whole objects.
func slim(obj any) (any, error) {
	obj, err := follow.WithoutManagedFields(obj)
	switch o := obj.(type) {
	case *v1.Node:
		s := &o.Status
		o.Annotations, s.Conditions, s.Addresses, s.VolumesInUse, s.VolumesAttached = nil, nil, nil, nil, nil
		s.Capacity, s.NodeInfo, s.Config = nil, v1.NodeSystemInfo{}, nil
	case *appsv1.ReplicaSet:
		o.Spec.Template, o.Status = v1.PodTemplateSpec{}, appsv1.ReplicaSetStatus{}
	case *appsv1.StatefulSet:
		o.Spec.Template, o.Spec.VolumeClaimTemplates, o.Status = v1.PodTemplateSpec{}, nil, appsv1.StatefulSetStatus{}
	case *v1.ReplicationController:
		o.Spec.Template = nil
	}
	return obj, err
}
