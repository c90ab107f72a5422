// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// ReplicationControllerName is the name of the controller of ReplicationControllers.
const ReplicationControllerName = "replicationcontroller-controller"

// NewReplicationController returns the controller of ReplicationControllers.
func NewReplicationController(d controller.Deps) (controller.Controller, error) {
	return newFor(d, replicationControllers(d))
}

func replicationControllers(d controller.Deps) kind[v1.ReplicationController] {
	return kind[v1.ReplicationController]{
		controller: ReplicationControllerName, gvk: v1.SchemeGroupVersion.WithKind("ReplicationController"),
		informer: d.Informers.Core().V1().ReplicationControllers().Informer(),
		read:     read,
		live: func(ctx context.Context, namespace, name string) (metav1.Object, error) {
			return d.Client.CoreV1().ReplicationControllers(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		writeStatus: func(ctx context.Context, set *appsv1.ReplicaSet) error {
			_, err := d.Client.CoreV1().ReplicationControllers(set.Namespace).UpdateStatus(ctx, write(set),
				metav1.UpdateOptions{})
			return err
		},
	}
}

// read converts a ReplicationController to a ReplicaSet.
func read(rc *v1.ReplicationController) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ReplicationController"},
		ObjectMeta: rc.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{
			Replicas: rc.Spec.Replicas, MinReadySeconds: rc.Spec.MinReadySeconds,
			Selector: &metav1.LabelSelector{MatchLabels: rc.Spec.Selector},
		},
		Status: appsv1.ReplicaSetStatus{
			Replicas: rc.Status.Replicas, FullyLabeledReplicas: rc.Status.FullyLabeledReplicas,
			ReadyReplicas: rc.Status.ReadyReplicas, AvailableReplicas: rc.Status.AvailableReplicas,
			ObservedGeneration: rc.Status.ObservedGeneration,
		},
	}
	if rc.Spec.Template != nil {
		set.Spec.Template = *rc.Spec.Template
	}
	for _, c := range rc.Status.Conditions {
		set.Status.Conditions = append(set.Status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return set
}

// write converts a ReplicaSet back to a ReplicationController. The result has all fields that are
// needed to write its status.
func write(set *appsv1.ReplicaSet) *v1.ReplicationController {
	rc := &v1.ReplicationController{
		ObjectMeta: set.ObjectMeta,
		Spec: v1.ReplicationControllerSpec{
			Replicas: set.Spec.Replicas, MinReadySeconds: set.Spec.MinReadySeconds,
			Selector: set.Spec.Selector.MatchLabels, Template: &set.Spec.Template,
		},
		Status: v1.ReplicationControllerStatus{
			Replicas: set.Status.Replicas, FullyLabeledReplicas: set.Status.FullyLabeledReplicas,
			ReadyReplicas: set.Status.ReadyReplicas, AvailableReplicas: set.Status.AvailableReplicas,
			ObservedGeneration: set.Status.ObservedGeneration,
		},
	}
	for _, c := range set.Status.Conditions {
		rc.Status.Conditions = append(rc.Status.Conditions, v1.ReplicationControllerCondition{
			Type: v1.ReplicationControllerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return rc
}
