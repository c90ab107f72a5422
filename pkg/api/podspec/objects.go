// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"keelson.dev/apiserver/resource"
)

// Of returns the pod specification in an object, or nil if it has none.
func Of(obj resource.Object) *corev1.PodSpec {
	switch o := obj.(type) {
	case *corev1.Pod:
		return &o.Spec
	case *corev1.PodTemplate:
		return &o.Template.Spec
	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			return &o.Spec.Template.Spec
		}
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec
	case *batchv1.Job:
		return &o.Spec.Template.Spec
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec
	}
	return nil
}

// Has reports whether objects of the type of obj have a pod specification.
func Has(obj resource.Object) bool {
	_, optional := obj.(*corev1.ReplicationController)
	return optional || Of(obj) != nil
}

// DropSchedulingGroups makes rows clear the scheduling group in the specifications that clients
// write, unless the stored object has one. It is for servers without the feature GenericWorkload.
func DropSchedulingGroups(rows []*resource.Row) {
	for _, row := range rows {
		if Has(row.New()) {
			dropSchedulingGroup(row)
		}
	}
}

func dropSchedulingGroup(row *resource.Row) {
	create, update := row.PrepareCreate, row.PrepareUpdate
	row.PrepareCreate = func(ctx context.Context, obj resource.Object) {
		if spec := Of(obj); spec != nil {
			spec.SchedulingGroup = nil
		}
		create(ctx, obj)
	}
	row.PrepareUpdate = func(ctx context.Context, obj, old resource.Object) {
		spec, was := Of(obj), Of(old)
		if spec != nil && (was == nil || was.SchedulingGroup == nil) {
			spec.SchedulingGroup = nil
		}
		update(ctx, obj, old)
	}
}
