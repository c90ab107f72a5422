// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/api/podspec"
)

// TestWarn compares warnings with those of Kubernetes 1.37.
func TestWarn(t *testing.T) {
	container := func(c corev1.Container) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{c}}
	}
	volume := func(s corev1.VolumeSource) corev1.PodSpec {
		return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: s}}}
	}
	items := []corev1.KeyToPath{{Path: "a"}, {Path: "a/b"}, {Path: "ab"}}
	for name, test := range map[string]struct {
		path        *field.Path
		annotations map[string]string
		spec        corev1.PodSpec
		want        []string
	}{
		"no warnings": {spec: container(corev1.Container{Name: "c"})},
		"deprecated node label": {
			spec: corev1.PodSpec{NodeSelector: map[string]string{"beta.kubernetes.io/os": "linux"}},
			want: []string{`spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`},
		},
		"removed volume type": {
			path: field.NewPath("spec", "template"), spec: volume(corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{}}),
			want: []string{"spec.template.spec.volumes[0].rbd: deprecated in v1.28, non-functional in v1.31+"},
		},
		"overlapping paths": {
			spec: volume(corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "m"}, Items: items}}),
			want: []string{`volume "v" (ConfigMap "m"): overlapping paths: "a/b" with "a"`},
		},
		"empty projection": {
			spec: volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{}}}}),
			want: []string{`volume "v" (Projected) has no sources provided`},
		},
		"overridden variable": {
			spec: container(corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "x"},
				{Name: "A", Value: "$(A)y"}, {Name: "A", Value: "z"}}}),
			want: []string{`spec.containers[0].env[2]: hides previous definition of "A", which may be dropped when using apply`},
		},
		"ports": {
			spec: container(corev1.Container{Ports: []corev1.ContainerPort{
				{ContainerPort: 80, Protocol: "TCP", Name: "a"}, {ContainerPort: 80, Protocol: "TCP"},
				{ContainerPort: 80, Protocol: "TCP", HostPort: 8080, Name: "a"},
			}}),
			want: []string{
				"spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
				"spec.containers[0].ports[2]: overlapping port definition with spec.containers[0].ports[0]",
				"spec.containers[0].ports[2]: overlapping port definition with spec.containers[0].ports[1]",
				`spec.containers[0].ports[2]: duplicate port name "a" with spec.containers[0].ports[0], ` +
					`services and probes that select ports by name will use spec.containers[0].ports[0]`,
			},
		},
		"fraction of a byte": {
			spec: container(corev1.Container{
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("500m")}}}),
			want: []string{`spec.containers[0].resources.limits[memory]: fractional byte value "500m" is ` +
				`invalid, must be an integer`},
		},
		"more whole bytes than fit into 64 bits": {
			spec: container(corev1.Container{
				Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{"memory": resource.MustParse("9223372036854775807")}}}),
		},
		"more bytes than fit into 64 bits, and a half": {
			spec: container(corev1.Container{
				Resources: corev1.ResourceRequirements{
					Limits: corev1.ResourceList{"memory": resource.MustParse("9223372036854775807500m")}}}),
			want: []string{`spec.containers[0].resources.limits[memory]: fractional byte value ` +
				`"9223372036854775807500m" is invalid, must be an integer`},
		},
		"AppArmor annotation of a template": {
			path:        field.NewPath("template"),
			annotations: map[string]string{corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "c": "unconfined"},
			spec:        container(corev1.Container{Name: "c"}),
			want: []string{
				`template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: ` +
					`deprecated since v1.30; use the "appArmorProfile" field instead`},
		},
		"negative grace period": {
			spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](-1)},
			want: []string{"spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid " +
				"and will be treated as 1"},
		},
		"address in an unusual form": {
			spec: corev1.PodSpec{HostAliases: []corev1.HostAlias{{IP: "010.1.1.1"}}},
			want: []string{`spec.hostAliases[0].ip: non-standard IP address "010.1.1.1" is invalid: use "10.1.1.1"`},
		},
		"empty selector": {
			spec: corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "z"}}},
			want: []string{"spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := podspec.Warn(test.path, &metav1.ObjectMeta{Annotations: test.annotations}, &test.spec)
			if !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}
