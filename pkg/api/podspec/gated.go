// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/apiserver/resource"
)

// features returns the features that have fields in pod specifications, but are off by default in Kubernetes 1.37.
// The function of a feature reports whether one of its fields is set. If drop is true, it clears them.
func features() []resource.Gated[*corev1.PodSpec] {
	return []resource.Gated[*corev1.PodSpec]{
		resource.GatedList("EvictionRequestAPI",
			func(s *corev1.PodSpec) *[]corev1.EvictionResponder { return &s.EvictionResponders }),
		resource.GatedField("GenericWorkload",
			func(s *corev1.PodSpec) **corev1.PodSchedulingGroup { return &s.SchedulingGroup }),
		{Feature: "ContainerStopSignals", Visit: stopSignals},
		{Feature: "AtomicWriteVolumeUserFields", Visit: fileOwners},
		{Feature: "EmptyDirVolumeMode", Visit: emptyDirModes},
		{Feature: "VolumeBindMountOptions", Visit: mountOptions},
		{Feature: "H2CContainerProbe", Visit: httpProtocols},
		{Feature: "GRPCContainerProbeTLS", Visit: grpcModes},
	}
}

// Gated returns the gated fields of a kind whose objects are pods or have a template for pods.
func Gated[O resource.Object]() []resource.Gated[O] {
	var gated []resource.Gated[O]
	for _, f := range features() {
		gated = append(gated, resource.Gated[O]{Feature: f.Feature, Visit: func(obj O, drop bool) bool {
			spec := Of(obj)
			return spec != nil && f.Visit(spec, drop)
		}})
	}
	return gated
}

// DropInitAnnotations deletes the annotations that specified init containers before there was a
// field for them, so that no kubelet obeys them.
func DropInitAnnotations(m *metav1.ObjectMeta) {
	for _, stage := range []string{"alpha", "beta"} {
		for _, name := range []string{"init-containers", "init-container-statuses"} {
			key := "pod." + stage + ".kubernetes.io/" + name
			if _, ok := m.Annotations[key]; ok {
				m.Annotations = maps.Clone(m.Annotations) // another object can have the same map
				delete(m.Annotations, key)
			}
		}
	}
}

// visit reports whether a field is set, and clears it if drop is true.
func visit[T any](field **T, drop bool) bool {
	set := *field != nil
	if drop && set {
		*field = nil
	}
	return set
}

func visitList[T any](field *[]T, drop bool) bool {
	set := len(*field) > 0
	if drop && *field != nil {
		*field = nil
	}
	return set
}

// anyOf visits a field of each element of a list.
func anyOf[E, T any](elements []E, field func(*E) **T, drop bool) bool {
	found := false
	for i := range elements {
		found = visit(field(&elements[i]), drop) || found
	}
	return found
}

func stopSignals(spec *corev1.PodSpec, drop bool) bool {
	found := false
	for _, c := range Containers(spec, nil) {
		if c.Lifecycle == nil || !visit(&c.Lifecycle.StopSignal, drop) {
			continue
		}
		found = true
		if *c.Lifecycle == (corev1.Lifecycle{}) {
			c.Lifecycle = nil
		}
	}
	return found
}

// fileOwners visits the owners of files in volumes.
func fileOwners(spec *corev1.PodSpec, drop bool) bool {
	found := false
	keys := func(items []corev1.KeyToPath) {
		found = anyOf(items, func(k *corev1.KeyToPath) **int64 { return &k.User }, drop) || found
	}
	files := func(items []corev1.DownwardAPIVolumeFile) {
		found = anyOf(items, func(f *corev1.DownwardAPIVolumeFile) **int64 { return &f.User }, drop) || found
	}
	for _, v := range spec.Volumes {
		switch {
		case v.Secret != nil:
			found = visit(&v.Secret.DefaultUser, drop) || found
			keys(v.Secret.Items)
		case v.ConfigMap != nil:
			found = visit(&v.ConfigMap.DefaultUser, drop) || found
			keys(v.ConfigMap.Items)
		case v.DownwardAPI != nil:
			found = visit(&v.DownwardAPI.DefaultUser, drop) || found
			files(v.DownwardAPI.Items)
		case v.Projected != nil:
			found = visit(&v.Projected.DefaultUser, drop) || found
			for _, s := range v.Projected.Sources {
				switch {
				case s.Secret != nil:
					keys(s.Secret.Items)
				case s.ConfigMap != nil:
					keys(s.ConfigMap.Items)
				case s.DownwardAPI != nil:
					files(s.DownwardAPI.Items)
				case s.ServiceAccountToken != nil:
					found = visit(&s.ServiceAccountToken.User, drop) || found
				case s.ClusterTrustBundle != nil:
					found = visit(&s.ClusterTrustBundle.User, drop) || found
				case s.PodCertificate != nil:
					found = visit(&s.PodCertificate.User, drop) || found
				}
			}
		}
	}
	return found
}

func emptyDirModes(spec *corev1.PodSpec, drop bool) bool {
	found := false
	for _, v := range spec.Volumes {
		if v.EmptyDir != nil {
			found = visit(&v.EmptyDir.Mode, drop) || found
		}
	}
	return found
}

func mountOptions(spec *corev1.PodSpec, drop bool) bool {
	found := false
	for _, c := range Containers(spec, nil) {
		for i := range c.VolumeMounts {
			found = visitList(&c.VolumeMounts[i].BindMountOptions, drop) || found
		}
	}
	return found
}

func httpProtocols(spec *corev1.PodSpec, drop bool) bool {
	found := false
	for _, c := range Containers(spec, nil) {
		var gets []*corev1.HTTPGetAction
		for _, p := range probes(c) {
			gets = append(gets, p.HTTPGet)
		}
		if l := c.Lifecycle; l != nil {
			for _, h := range []*corev1.LifecycleHandler{l.PostStart, l.PreStop} {
				if h != nil {
					gets = append(gets, h.HTTPGet)
				}
			}
		}
		for _, get := range gets {
			found = get != nil && visit(&get.Protocol, drop) || found
		}
	}
	return found
}

func grpcModes(spec *corev1.PodSpec, drop bool) bool {
	found := false
	for _, c := range Containers(spec, nil) {
		for _, p := range probes(c) {
			found = p.GRPC != nil && visit(&p.GRPC.Mode, drop) || found
		}
	}
	return found
}

func probes(c *corev1.Container) []*corev1.Probe {
	return slices.DeleteFunc([]*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe},
		func(p *corev1.Probe) bool { return p == nil })
}
