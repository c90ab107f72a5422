// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
)

func deploymentCells(d *appsv1.Deployment, env resource.CellEnv) []any {
	selector := "<invalid>"
	if s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil {
		selector = s.String()
	}
	names, images := column.Containers(d.Spec.Template.Spec.Containers)
	return []any{
		d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, wanted(d.Spec.Replicas)),
		int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), env.Age(d.CreationTimestamp),
		names, images, selector,
	}
}

func replicaSetCells(rs *appsv1.ReplicaSet, env resource.CellEnv) []any {
	names, images := column.Containers(rs.Spec.Template.Spec.Containers)
	return []any{
		rs.Name, wanted(rs.Spec.Replicas), int64(rs.Status.Replicas), int64(rs.Status.ReadyReplicas), env.Age(rs.CreationTimestamp),
		names, images, metav1.FormatLabelSelector(rs.Spec.Selector),
	}
}

func statefulSetCells(s *appsv1.StatefulSet, env resource.CellEnv) []any {
	names, images := column.Containers(s.Spec.Template.Spec.Containers)
	return []any{
		s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, wanted(s.Spec.Replicas)), env.Age(s.CreationTimestamp), names, images,
	}
}

func daemonSetCells(d *appsv1.DaemonSet, env resource.CellEnv) []any {
	names, images := column.Containers(d.Spec.Template.Spec.Containers)
	return []any{
		d.Name, int64(d.Status.DesiredNumberScheduled), int64(d.Status.CurrentNumberScheduled), int64(d.Status.NumberReady),
		int64(d.Status.UpdatedNumberScheduled), int64(d.Status.NumberAvailable),
		labels.FormatLabels(d.Spec.Template.Spec.NodeSelector), env.Age(d.CreationTimestamp),
		names, images, metav1.FormatLabelSelector(d.Spec.Selector),
	}
}

func controllerRevisionCells(r *appsv1.ControllerRevision, env resource.CellEnv) []any {
	controller := column.None
	if ref := metav1.GetControllerOf(r); ref != nil {
		kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
		controller = strings.ToLower(kind.String()) + "/" + ref.Name
	}
	return []any{r.Name, controller, r.Revision, env.Age(r.CreationTimestamp)}
}

func wanted(replicas *int32) int64 {
	if replicas == nil {
		return 0
	}
	return int64(*replicas)
}
