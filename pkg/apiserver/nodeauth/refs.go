// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeauth

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// refs collects the objects to which a pod refers. All are in the pod's namespace.
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

// podRefs returns all objects that a node needs to run the pod.
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
		r.claim(c, p.Status.ResourceClaimStatuses)
	}
	if e := p.Status.ExtendedResourceClaimStatus; e != nil {
		r.add(resourceClaim, e.ResourceClaimName)
	}
	return r.out
}

// claim adds the resource claim of c. If c names a template, the name of the created claim is in
// made, the list in the pod's status. Other entries of made are ignored.
func (r *refs) claim(c corev1.PodResourceClaim, made []corev1.PodResourceClaimStatus) {
	name := c.ResourceClaimName
	if name == nil && c.ResourceClaimTemplateName != nil {
		i := slices.IndexFunc(made, func(s corev1.PodResourceClaimStatus) bool { return s.Name == c.Name })
		if i >= 0 {
			name = made[i].ResourceClaimName
		}
	}
	if name != nil {
		r.add(resourceClaim, *name)
	}
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

// volumeSecrets returns the secrets that a node needs to mount a bound volume. It omits secrets
// that only the controller of a CSI driver needs.
func volumeSecrets(v *corev1.PersistentVolume) []object {
	var out []object
	add := func(namespace, name string) {
		if name != "" {
			out = append(out, object{secret, namespace, name})
		}
	}
	claimed := func(ref *corev1.SecretReference) { // if the reference has no namespace, the secret is in that of the claim
		if ref != nil {
			add(cmp.Or(ref.Namespace, v.Spec.ClaimRef.Namespace), ref.Name)
		}
	}
	exact := func(ref *corev1.SecretReference) {
		if ref != nil {
			add(ref.Namespace, ref.Name)
		}
	}
	s := &v.Spec.PersistentVolumeSource
	switch {
	case s.CSI != nil:
		exact(s.CSI.NodePublishSecretRef)
		exact(s.CSI.NodeStageSecretRef)
		exact(s.CSI.NodeExpandSecretRef)
	case s.AzureFile != nil:
		ref := &corev1.SecretReference{Name: s.AzureFile.SecretName}
		if n := s.AzureFile.SecretNamespace; n != nil {
			ref.Namespace = *n
		}
		claimed(ref)
	case s.CephFS != nil:
		claimed(s.CephFS.SecretRef)
	case s.Cinder != nil:
		exact(s.Cinder.SecretRef)
	case s.FlexVolume != nil:
		claimed(s.FlexVolume.SecretRef)
	case s.RBD != nil:
		claimed(s.RBD.SecretRef)
	case s.ScaleIO != nil:
		claimed(s.ScaleIO.SecretRef)
	case s.ISCSI != nil:
		claimed(s.ISCSI.SecretRef)
	case s.StorageOS != nil && s.StorageOS.SecretRef != nil:
		add(s.StorageOS.SecretRef.Namespace, s.StorageOS.SecretRef.Name)
	}
	return out
}

// Needs reports whether a pod refers to any secret, and whether it refers to any config map.
func Needs(p *corev1.Pod) (secrets, configMaps bool) {
	for _, o := range podRefs(p) {
		secrets = secrets || o.kind == secret
		configMaps = configMaps || o.kind == configMap
	}
	return secrets, configMaps
}
