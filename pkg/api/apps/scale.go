// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

func deploymentScale() *resource.Scale {
	return scale(func(d *appsv1.Deployment) (**int32, int32, *metav1.LabelSelector) {
		return &d.Spec.Replicas, d.Status.Replicas, d.Spec.Selector
	})
}

func replicaSetScale() *resource.Scale {
	return scale(func(rs *appsv1.ReplicaSet) (**int32, int32, *metav1.LabelSelector) {
		return &rs.Spec.Replicas, rs.Status.Replicas, rs.Spec.Selector
	})
}

func statefulSetScale() *resource.Scale {
	return scale(func(s *appsv1.StatefulSet) (**int32, int32, *metav1.LabelSelector) {
		return &s.Spec.Replicas, s.Status.Replicas, s.Spec.Selector
	})
}

func scale[T any](parts func(*T) (replicas **int32, status int32, selector *metav1.LabelSelector)) *resource.Scale {
	return &resource.Scale{
		Get: func(obj resource.Object) (spec, status int32, selector string, err error) {
			replicas, status, labels := parts(any(obj).(*T))
			if *replicas != nil {
				spec = **replicas
			}
			s, err := metav1.LabelSelectorAsSelector(labels)
			if err != nil {
				return 0, 0, "", err
			}
			return spec, status, s.String(), nil
		},
		Set: func(obj resource.Object, n int32) {
			replicas, _, _ := parts(any(obj).(*T))
			*replicas = &n
		},
		SpecPath: "spec.replicas",
	}
}
