// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type metaManagedFields = metav1.ManagedFieldsEntry

// slimPod keeps what the node authorizer needs of a pod: which node it is on
// and which secrets, config maps, claims and accounts it refers to. A server
// holds every pod of the cluster this way.
func slimPod(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{}
	out.Name, out.Namespace, out.UID, out.ResourceVersion = pod.Name, pod.Namespace, pod.UID, pod.ResourceVersion
	if a, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		out.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: a}
	}
	s := &pod.Spec
	out.Spec = corev1.PodSpec{
		NodeName: s.NodeName, ServiceAccountName: s.ServiceAccountName,
		ImagePullSecrets: s.ImagePullSecrets, Volumes: s.Volumes,
		ResourceClaims: s.ResourceClaims,
	}
	out.Spec.InitContainers = slimContainers(s.InitContainers)
	out.Spec.Containers = slimContainers(s.Containers)
	for _, c := range s.EphemeralContainers {
		out.Spec.EphemeralContainers = append(out.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name, Env: envSources(c.Env), EnvFrom: c.EnvFrom},
		})
	}
	out.Status.ResourceClaimStatuses = pod.Status.ResourceClaimStatuses
	out.Status.ExtendedResourceClaimStatus = pod.Status.ExtendedResourceClaimStatus
	return out
}

func slimContainers(in []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(in))
	for i := range in {
		out[i] = corev1.Container{Name: in[i].Name, Env: envSources(in[i].Env), EnvFrom: in[i].EnvFrom}
	}
	return out
}

// envSources drops the variables with plain values.
func envSources(in []corev1.EnvVar) []corev1.EnvVar {
	var out []corev1.EnvVar
	for _, e := range in {
		if e.ValueFrom != nil {
			out = append(out, e)
		}
	}
	return out
}
