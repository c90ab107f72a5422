// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson.dev/api/scheduling/v1alpha1"
)

// slim drops from objects what no plugin looks at, before they are kept: most of
// a pod is what its kubelet needs. Whoever is shown whole objects, as extenders
// are, needs other caches.
func (s *sharer) slim(obj any) (any, error) {
	obj, err := withoutManagedFields(obj)
	switch o := obj.(type) {
	case *v1.Pod:
		slimPod(o)
		s.share(o)
	case *v1.Node:
		st := &o.Status
		o.Annotations, st.Conditions, st.Addresses, st.VolumesInUse, st.VolumesAttached = nil, nil, nil, nil, nil
		st.Capacity, st.NodeInfo, st.Config = nil, v1.NodeSystemInfo{}, nil
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
	p.Status.ContainerStatuses = slimStatuses(p.Status.ContainerStatuses, p.Spec.Containers)
	p.Status.InitContainerStatuses = slimStatuses(p.Status.InitContainerStatuses, p.Spec.InitContainers)
	if p.Spec.NodeName != "" {
		p.Status.Conditions = slimConditions(p.Status.Conditions)
	}
}

// slimConditions leaves those of a pod on a node that tell of evictions and resizes.
func slimConditions(conditions []v1.PodCondition) []v1.PodCondition {
	var out []v1.PodCondition
	for i := range conditions {
		switch conditions[i].Type {
		case v1.PodScheduled, v1.PodReadyToStartContainers, v1.PodInitialized, v1.ContainersReady, v1.PodReady:
		default:
			out = append(out, conditions[i])
		}
	}
	return out
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

// slimStatuses leaves what tells of resizes: none, where every container has what
// it asks for.
func slimStatuses(statuses []v1.ContainerStatus, containers []v1.Container) []v1.ContainerStatus {
	resized := false
	for i, s := range statuses {
		statuses[i] = v1.ContainerStatus{Name: s.Name, Resources: s.Resources, AllocatedResources: s.AllocatedResources}
		resized = resized || !asAsked(&s, containers)
	}
	if !resized {
		return nil
	}
	return statuses
}

// asAsked tells whether what a container has is what it asks for.
func asAsked(s *v1.ContainerStatus, containers []v1.Container) bool {
	i := slices.IndexFunc(containers, func(c v1.Container) bool { return c.Name == s.Name })
	if i < 0 {
		return false
	}
	same := func(have v1.ResourceList) bool {
		return have == nil || maps.EqualFunc(have, containers[i].Resources.Requests, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
	}
	return same(s.AllocatedResources) && (s.Resources == nil || same(s.Resources.Requests))
}

// withoutManagedFields drops what is large and never read.
func withoutManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}
