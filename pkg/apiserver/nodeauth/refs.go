// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeauth

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// refs collects objects of one namespace.
type refs struct {
	namespace string
	out       []object
}

func (r *refs) add(k kind, name string) {
	if o := (object{k, r.namespace, name}); name != "" && !slices.Contains(r.out, o) {
		r.out = append(r.out, o)
	}
}

func (r *refs) local(ref *corev1.LocalObjectReference) {
	if ref != nil {
		r.add(secret, ref.Name)
	}
}

// podRefs is everything a pod makes its node need.
func podRefs(p *corev1.Pod) []object {
	r := &refs{namespace: p.Namespace}
	r.add(serviceAccount, p.Spec.ServiceAccountName)
	for _, s := range p.Spec.ImagePullSecrets {
		r.add(secret, s.Name)
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			r.env(list[i].Env, list[i].EnvFrom)
		}
	}
	for i := range p.Spec.EphemeralContainers {
		r.env(p.Spec.EphemeralContainers[i].Env, p.Spec.EphemeralContainers[i].EnvFrom)
	}
	for i := range p.Spec.Volumes {
		r.volume(p.Name, &p.Spec.Volumes[i])
	}
	for _, c := range p.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			r.add(resourceClaim, *c.ResourceClaimName)
		}
	}
	for _, c := range p.Status.ResourceClaimStatuses {
		if c.ResourceClaimName != nil {
			r.add(resourceClaim, *c.ResourceClaimName)
		}
	}
	if e := p.Status.ExtendedResourceClaimStatus; e != nil {
		r.add(resourceClaim, e.ResourceClaimName)
	}
	return r.out
}

func (r *refs) env(env []corev1.EnvVar, from []corev1.EnvFromSource) {
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if k := e.ValueFrom.SecretKeyRef; k != nil {
			r.add(secret, k.Name)
		}
		if k := e.ValueFrom.ConfigMapKeyRef; k != nil {
			r.add(configMap, k.Name)
		}
	}
	for _, e := range from {
		if e.SecretRef != nil {
			r.add(secret, e.SecretRef.Name)
		}
		if e.ConfigMapRef != nil {
			r.add(configMap, e.ConfigMapRef.Name)
		}
	}
}

func (r *refs) volume(podName string, v *corev1.Volume) {
	switch {
	case v.Secret != nil:
		r.add(secret, v.Secret.SecretName)
	case v.ConfigMap != nil:
		r.add(configMap, v.ConfigMap.Name)
	case v.PersistentVolumeClaim != nil:
		r.add(claim, v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil:
		r.add(claim, podName+"-"+v.Name)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				r.add(secret, s.Secret.Name)
			}
			if s.ConfigMap != nil {
				r.add(configMap, s.ConfigMap.Name)
			}
		}
	case v.CSI != nil:
		r.local(v.CSI.NodePublishSecretRef)
	case v.AzureFile != nil:
		r.add(secret, v.AzureFile.SecretName)
	case v.CephFS != nil:
		r.local(v.CephFS.SecretRef)
	case v.Cinder != nil:
		r.local(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		r.local(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		r.local(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		r.local(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		r.local(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		r.local(v.StorageOS.SecretRef)
	}
}

// volumeSecrets are the secrets a node needs to mount a volume.
func volumeSecrets(v *corev1.PersistentVolume) []object {
	var out []object
	claimNamespace := v.Spec.ClaimRef.Namespace
	add := func(ref *corev1.SecretReference) {
		if ref == nil {
			return
		}
		namespace := ref.Namespace
		if namespace == "" {
			namespace = claimNamespace
		}
		out = append(out, object{secret, namespace, ref.Name})
	}
	s := &v.Spec.PersistentVolumeSource
	switch {
	case s.CSI != nil:
		add(s.CSI.NodePublishSecretRef)
		add(s.CSI.NodeStageSecretRef)
		add(s.CSI.ControllerPublishSecretRef)
		add(s.CSI.ControllerExpandSecretRef)
		add(s.CSI.NodeExpandSecretRef)
	case s.AzureFile != nil:
		namespace := claimNamespace
		if n := s.AzureFile.SecretNamespace; n != nil {
			namespace = *n
		}
		out = append(out, object{secret, namespace, s.AzureFile.SecretName})
	case s.CephFS != nil:
		add(s.CephFS.SecretRef)
	case s.Cinder != nil:
		add(s.Cinder.SecretRef)
	case s.FlexVolume != nil:
		add(s.FlexVolume.SecretRef)
	case s.RBD != nil:
		add(s.RBD.SecretRef)
	case s.ScaleIO != nil:
		add(s.ScaleIO.SecretRef)
	case s.ISCSI != nil:
		add(s.ISCSI.SecretRef)
	case s.StorageOS != nil && s.StorageOS.SecretRef != nil:
		out = append(out, object{secret, s.StorageOS.SecretRef.Namespace, s.StorageOS.SecretRef.Name})
	}
	return out
}

// NeedsSecrets reports whether a pod refers to any secret.
func NeedsSecrets(p *corev1.Pod) bool {
	for _, o := range podRefs(p) {
		if o.kind == secret {
			return true
		}
	}
	return false
}

// NeedsAPIObjects names the first kind of API object, beside its node, that a
// pod refers to; empty when there is none.
func NeedsAPIObjects(p *corev1.Pod) string {
	kinds := map[kind]string{
		secret: "secrets", configMap: "configmaps", claim: "persistentvolumeclaims",
		serviceAccount: "serviceaccounts", resourceClaim: "resourceclaims",
	}
	for _, o := range podRefs(p) {
		if name := kinds[o.kind]; name != "" {
			return name
		}
	}
	return ""
}
