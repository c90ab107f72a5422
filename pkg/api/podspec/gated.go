// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// feature visits the fields of one feature in a specification. It reports whether one of them is
// set. If drop is true it clears them.
type feature func(spec *corev1.PodSpec, drop bool) bool

// disabled returns the features that are off by default in Kubernetes 1.37 and cannot be turned on.
func disabled() []feature {
	return []feature{
		func(s *corev1.PodSpec, drop bool) bool { return visitList(&s.EvictionResponders, drop) },
		stopSignals, fileOwners, emptyDirModes, mountOptions, httpProtocols, grpcModes,
	}
}

// DropDisabled clears the fields of disabled features, unless old, the specification that is
// replaced, already uses the feature. old is nil on create.
func DropDisabled(spec, old *corev1.PodSpec) {
	for _, f := range disabled() {
		if old == nil || !f(old, false) {
			f(spec, true)
		}
	}
}

// DropDisabledOfPod clears the fields of disabled features in a pod, unless old, the pod that is
// replaced, uses the feature, and the annotations of DropInitAnnotations. old is nil on create.
func DropDisabledOfPod(pod, old *corev1.Pod) {
	var was *corev1.PodSpec
	if old != nil {
		was = &old.Spec
	}
	DropDisabled(&pod.Spec, was)
	DropInitAnnotations(&pod.ObjectMeta)
}

// DropDisabledOfTemplate does the same for a template as DropDisabledOfPod for a pod.
func DropDisabledOfTemplate(t, old *corev1.PodTemplateSpec) {
	var was *corev1.PodSpec
	if old != nil {
		was = &old.Spec
	}
	DropDisabled(&t.Spec, was)
	DropInitAnnotations(&t.ObjectMeta)
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
	if drop {
		*field = nil
	}
	return set
}

func visitList[T any](field *[]T, drop bool) bool {
	set := len(*field) > 0
	if drop {
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
