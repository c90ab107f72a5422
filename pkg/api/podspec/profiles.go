// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"keelson.dev/keelson/pkg/api/report"
)

// ValidateProfiles wants of what is made anew that annotations of older clients, which say how
// containers are confined, say what the fields say, where both do.
func ValidateProfiles(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if len(annotations) == 0 {
		return nil
	}
	var r report.Report
	checkSeccompProfiles(&r, annotations, spec, path)
	if spec.OS == nil || spec.OS.Name != corev1.Windows {
		checkAppArmorProfiles(&r, annotations, spec, path)
	}
	return r.Errors
}

func checkSeccompProfiles(r *report.Report, annotations map[string]string, spec *corev1.PodSpec, path *field.Path) {
	judge := func(key string, p *corev1.SeccompProfile, at *field.Path) {
		text, ok := annotations[key]
		if p == nil || !ok {
			return
		}
		const local = corev1.SeccompLocalhostProfileNamePrefix
		want := map[corev1.SeccompProfileType]string{
			corev1.SeccompProfileTypeUnconfined:     corev1.SeccompProfileNameUnconfined,
			corev1.SeccompProfileTypeRuntimeDefault: corev1.SeccompProfileRuntimeDefault,
			corev1.SeccompProfileTypeLocalhost:      local + ptr.Deref(p.LocalhostProfile, ""),
		}[p.Type]
		if text == corev1.DeprecatedSeccompProfileDockerDefault {
			text = corev1.SeccompProfileRuntimeDefault
		}
		checkSame(r, "seccomp", local, want, text, at.Child("securityContext", "seccompProfile"))
	}
	if sc := spec.SecurityContext; sc != nil {
		judge(corev1.SeccompPodAnnotationKey, sc.SeccompProfile, path)
	}
	for place, c := range Containers(spec, path) {
		if c.SecurityContext != nil {
			judge(corev1.SeccompContainerAnnotationKeyPrefix+c.Name, c.SecurityContext.SeccompProfile, place.Path)
		}
	}
}

func checkAppArmorProfiles(r *report.Report, annotations map[string]string, spec *corev1.PodSpec, path *field.Path) {
	var pod *corev1.AppArmorProfile
	if spec.SecurityContext != nil {
		pod = spec.SecurityContext.AppArmorProfile
	}
	for place, c := range Containers(spec, path) {
		p := pod
		if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			p = c.SecurityContext.AppArmorProfile
		}
		text, ok := annotations[appArmorPrefix+c.Name]
		if p == nil || !ok {
			continue
		}
		const local = corev1.DeprecatedAppArmorBetaProfileNamePrefix
		want := map[corev1.AppArmorProfileType]string{
			corev1.AppArmorProfileTypeUnconfined:     corev1.DeprecatedAppArmorBetaProfileNameUnconfined,
			corev1.AppArmorProfileTypeRuntimeDefault: corev1.DeprecatedAppArmorBetaProfileRuntimeDefault,
			corev1.AppArmorProfileTypeLocalhost:      local + ptr.Deref(p.LocalhostProfile, ""),
		}[p.Type]
		checkSame(r, "apparmor", local, want, text, place.Path.Child("securityContext", "appArmorProfile"))
	}
}

// checkSame wants that an annotation names the profile that a field does, by the annotation's
// name for it: empty where the field's type is none. local begins the names of profiles that are
// files of the node's.
func checkSame(r *report.Report, mechanism, local, want, text string, at *field.Path) {
	switch {
	case want == "" || want == text:
	case strings.HasPrefix(want, local) && strings.HasPrefix(text, local):
		r.Forbidden(at.Child("localhostProfile"), mechanism+" profile in annotation and field must match")
	default:
		r.Forbidden(at.Child("type"), mechanism+" type in annotation and field must match")
	}
}
