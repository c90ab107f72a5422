// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/api/podspec"
)

func TestProfiles(t *testing.T) {
	const (
		pod   = "seccomp.security.alpha.kubernetes.io/pod"
		one   = "container.seccomp.security.alpha.kubernetes.io/c"
		armor = "container.apparmor.security.beta.kubernetes.io/c"

		seccompOfPod  = "spec.securityContext.seccompProfile."
		seccompOfOne  = "spec.initContainers[0].securityContext.seccompProfile."
		appArmorOfOne = "spec.initContainers[0].securityContext.appArmorProfile."

		seccompType  = "Forbidden: seccomp type in annotation and field must match"
		seccompName  = "Forbidden: seccomp profile in annotation and field must match"
		appArmorType = "Forbidden: apparmor type in annotation and field must match"
		appArmorName = "Forbidden: apparmor profile in annotation and field must match"
	)
	seccomp := func(kind corev1.SeccompProfileType, local *string) *corev1.SeccompProfile {
		return &corev1.SeccompProfile{Type: kind, LocalhostProfile: local}
	}
	appArmor := func(kind corev1.AppArmorProfileType, local *string) *corev1.AppArmorProfile {
		return &corev1.AppArmorProfile{Type: kind, LocalhostProfile: local}
	}
	for name, tc := range map[string]struct {
		annotations map[string]string
		pod, one    *corev1.SeccompProfile
		all, own    *corev1.AppArmorProfile
		os          corev1.OSName
		want        string
	}{
		"no annotation": {pod: seccomp("Unconfined", nil)},
		"annotation without a field": {annotations: map[string]string{pod: "unconfined",
			one: "localhost/a", armor: "unconfined"}},
		"same": {annotations: map[string]string{pod: "unconfined"},
			pod: seccomp("Unconfined", nil)},
		"same profile by its older name": {annotations: map[string]string{pod: "docker/default"},
			pod: seccomp("RuntimeDefault", nil)},
		"same local profile": {annotations: map[string]string{pod: "localhost/a"},
			pod: seccomp("Localhost", ptr.To("a"))},
		"another local profile": {annotations: map[string]string{pod: "localhost/a"},
			pod: seccomp("Localhost", ptr.To("b")), want: seccompOfPod + "localhostProfile: " + seccompName},
		"no local profile": {annotations: map[string]string{pod: "unconfined"},
			pod: seccomp("Localhost", ptr.To("b")), want: seccompOfPod + "type: " + seccompType},
		"other type": {annotations: map[string]string{pod: "localhost/a"},
			pod: seccomp("RuntimeDefault", nil), want: seccompOfPod + "type: " + seccompType},
		"unknown type": {annotations: map[string]string{pod: "localhost/a"}, pod: seccomp("x", nil)},
		"of a container": {annotations: map[string]string{one: "runtime/default"},
			one: seccomp("Unconfined", nil), want: seccompOfOne + "type: " + seccompType},
		"of the pod only": {annotations: map[string]string{one: "runtime/default"},
			pod: seccomp("Unconfined", nil)},
		"same AppArmor": {annotations: map[string]string{armor: "localhost/a"},
			own: appArmor("Localhost", ptr.To("a"))},
		"other AppArmor": {annotations: map[string]string{armor: "localhost/a"},
			own: appArmor("Localhost", ptr.To("b")), want: appArmorOfOne + "localhostProfile: " + appArmorName},
		"AppArmor of the pod": {annotations: map[string]string{armor: "runtime/default"},
			all: appArmor("Unconfined", nil), want: appArmorOfOne + "type: " + appArmorType},
		"AppArmor profile of the container": {annotations: map[string]string{armor: "runtime/default"},
			all: appArmor("Unconfined", nil), own: appArmor("RuntimeDefault", nil)},
		"AppArmor of Windows": {annotations: map[string]string{armor: "runtime/default"},
			own: appArmor("Unconfined", nil), os: corev1.Windows},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &corev1.PodSpec{
				SecurityContext: &corev1.PodSecurityContext{SeccompProfile: tc.pod, AppArmorProfile: tc.all},
				InitContainers: []corev1.Container{
					{Name: "c", SecurityContext: &corev1.SecurityContext{SeccompProfile: tc.one, AppArmorProfile: tc.own}}},
				Containers: []corev1.Container{{Name: "d"}},
			}
			if tc.os != "" {
				spec.OS = &corev1.PodOS{Name: tc.os}
			}
			got := ""
			if err := podspec.ValidateProfiles(tc.annotations, spec, field.NewPath("spec")).ToAggregate(); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
