// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"

	"keelson.dev/apiserver/resource"
)

// olderRuntimeClasses have a spec.
func olderRuntimeClasses() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(nodev1alpha1.SchemeGroupVersion.WithKind("RuntimeClass"), func(in *nodev1alpha1.RuntimeClass, out *nodev1.RuntimeClass) {
			out.Handler = in.Spec.RuntimeHandler
			if o := in.Spec.Overhead; o != nil {
				out.Overhead = &nodev1.Overhead{PodFixed: o.PodFixed}
			}
			if s := in.Spec.Scheduling; s != nil {
				out.Scheduling = &nodev1.Scheduling{NodeSelector: s.NodeSelector, Tolerations: append([]corev1.Toleration(nil), s.Tolerations...)}
			}
		}),
	}
}
