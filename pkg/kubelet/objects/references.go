// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package objects

import v1 "k8s.io/api/core/v1"

// References returns all ConfigMaps and Secrets that the pod's spec names. The Node authorizer
// permits the pod's node to read exactly these objects.
func References(pod *v1.Pod) map[Ref]struct{} {
	c := collector{namespace: pod.Namespace, refs: map[Ref]struct{}{}}
	for _, s := range pod.Spec.ImagePullSecrets {
		c.secret(s.Name)
	}
	for i := range pod.Spec.InitContainers {
		c.container(pod.Spec.InitContainers[i].EnvFrom, pod.Spec.InitContainers[i].Env)
	}
	for i := range pod.Spec.Containers {
		c.container(pod.Spec.Containers[i].EnvFrom, pod.Spec.Containers[i].Env)
	}
	for i := range pod.Spec.EphemeralContainers {
		c.container(pod.Spec.EphemeralContainers[i].EnvFrom, pod.Spec.EphemeralContainers[i].Env)
	}
	for i := range pod.Spec.Volumes {
		c.volume(&pod.Spec.Volumes[i].VolumeSource)
	}
	return c.refs
}

type collector struct {
	namespace string
	refs      map[Ref]struct{}
}

func (c collector) configMap(name string) { c.add(KindConfigMap, name) }
func (c collector) secret(name string)    { c.add(KindSecret, name) }

func (c collector) add(k Kind, name string) {
	if name != "" {
		c.refs[Ref{k, c.namespace, name}] = struct{}{}
	}
}

func (c collector) local(r *v1.LocalObjectReference) {
	if r != nil {
		c.secret(r.Name)
	}
}

func (c collector) container(from []v1.EnvFromSource, env []v1.EnvVar) {
	for _, f := range from {
		if f.ConfigMapRef != nil {
			c.configMap(f.ConfigMapRef.Name)
		}
		if f.SecretRef != nil {
			c.secret(f.SecretRef.Name)
		}
	}
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			c.configMap(r.Name)
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			c.secret(r.Name)
		}
	}
}

func (c collector) volume(v *v1.VolumeSource) {
	switch {
	case v.ConfigMap != nil:
		c.configMap(v.ConfigMap.Name)
	case v.Secret != nil:
		c.secret(v.Secret.SecretName)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				c.configMap(s.ConfigMap.Name)
			}
			if s.Secret != nil {
				c.secret(s.Secret.Name)
			}
		}
	case v.AzureFile != nil:
		c.secret(v.AzureFile.SecretName)
	case v.CephFS != nil:
		c.local(v.CephFS.SecretRef)
	case v.Cinder != nil:
		c.local(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		c.local(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		c.local(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		c.local(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		c.local(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		c.local(v.StorageOS.SecretRef)
	case v.CSI != nil:
		c.local(v.CSI.NodePublishSecretRef)
	}
}
