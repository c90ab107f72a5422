// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"keelson.dev/api/scheduling/v1alpha1"
)

// slim drops from objects what no plugin looks at, before they are kept: most of
// a pod is what its kubelet needs. Whoever is shown whole objects, as extenders
// are, needs other caches.
func slim(obj any) (any, error) {
	obj, err := withoutManagedFields(obj)
	switch o := obj.(type) {
	case *v1.Pod:
		slimPod(o)
	case *v1.Node:
		s := &o.Status
		o.Annotations, s.Conditions, s.Addresses, s.VolumesInUse, s.VolumesAttached = nil, nil, nil, nil, nil
		s.Capacity, s.NodeInfo, s.Config = nil, v1.NodeSystemInfo{}, nil
	case *appsv1.ReplicaSet:
		o.Spec.Template, o.Status = v1.PodTemplateSpec{}, appsv1.ReplicaSetStatus{}
	case *appsv1.StatefulSet:
		o.Spec.Template, o.Spec.VolumeClaimTemplates, o.Status = v1.PodTemplateSpec{}, nil, appsv1.StatefulSetStatus{}
	case *v1.ReplicationController:
		o.Spec.Template = nil
	}
	return obj, err
}

func slimPod(p *v1.Pod) {
	p.Annotations = gangAnnotations(p.Annotations)
	p.Spec.DNSConfig, p.Spec.HostAliases, p.Spec.ImagePullSecrets = nil, nil, nil
	for i := range p.Spec.Containers {
		slimContainer(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		slimContainer(&p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil {
			v.VolumeSource = v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
		}
	}
	p.Status.PodIPs, p.Status.HostIPs, p.Status.EphemeralContainerStatuses = nil, nil, nil
	slimStatuses(p.Status.ContainerStatuses)
	slimStatuses(p.Status.InitContainerStatuses)
}

func gangAnnotations(all map[string]string) map[string]string {
	if all[v1alpha1.AnnGang] == "" {
		return nil
	}
	return map[string]string{v1alpha1.AnnGang: all[v1alpha1.AnnGang], v1alpha1.AnnGangSize: all[v1alpha1.AnnGangSize]}
}

func slimContainer(c *v1.Container) {
	c.Command, c.Args, c.Env, c.EnvFrom, c.VolumeMounts, c.VolumeDevices = nil, nil, nil, nil, nil, nil
	c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil
	for _, p := range c.Ports {
		if p.HostPort != 0 {
			return
		}
	}
	c.Ports = nil
}

// slimStatuses leaves what tells of resizes.
func slimStatuses(statuses []v1.ContainerStatus) {
	for i, s := range statuses {
		statuses[i] = v1.ContainerStatus{Name: s.Name, Resources: s.Resources, AllocatedResources: s.AllocatedResources}
	}
}

// withoutManagedFields drops what is large and never read.
func withoutManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}
