// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"keelson.dev/apiserver/resource"
)

func replicationControllerScale() *resource.Scale {
	return &resource.Scale{
		Get: func(obj resource.Object) (spec, status int32, selector string, err error) {
			rc := obj.(*corev1.ReplicationController)
			if rc.Spec.Replicas != nil {
				spec = *rc.Spec.Replicas
			}
			return spec, rc.Status.Replicas, labels.Set(rc.Spec.Selector).String(), nil
		},
		Set: func(obj resource.Object, replicas int32) {
			obj.(*corev1.ReplicationController).Spec.Replicas = &replicas
		},
		SpecPath: "spec.replicas",
	}
}
