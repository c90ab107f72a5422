// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

// Kinds of this group once were of the group extensions. What they had fields for that
// are gone is in annotations.

func olderDeployments() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(appsv1beta1.SchemeGroupVersion.WithKind("Deployment"), func(in *appsv1beta1.Deployment, out *appsv1.Deployment) {
			if to := in.Spec.RollbackTo; to != nil {
				keepRevision(out, to.Revision)
			}
		}),
		resource.NewStoredForm(extensionsv1beta1.SchemeGroupVersion.WithKind("Deployment"), func(in *extensionsv1beta1.Deployment, out *appsv1.Deployment) {
			if to := in.Spec.RollbackTo; to != nil {
				keepRevision(out, to.Revision)
			}
		}),
	}
}

func keepRevision(d *appsv1.Deployment, revision int64) {
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, appsv1.DeprecatedRollbackTo, strconv.FormatInt(revision, 10))
}

func olderDaemonSets() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(extensionsv1beta1.SchemeGroupVersion.WithKind("DaemonSet"), func(in *extensionsv1beta1.DaemonSet, out *appsv1.DaemonSet) {
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, appsv1.DeprecatedTemplateGeneration, strconv.FormatInt(in.Spec.TemplateGeneration, 10))
		}),
	}
}

func olderReplicaSets() []resource.StoredForm {
	return []resource.StoredForm{resource.NewStoredForm[extensionsv1beta1.ReplicaSet, appsv1.ReplicaSet](extensionsv1beta1.SchemeGroupVersion.WithKind("ReplicaSet"), nil)}
}
