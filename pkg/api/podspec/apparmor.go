// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// ProfilesFromAnnotations gives containers the AppArmor profile that an
// annotation of older clients names, where no field does.
func ProfilesFromAnnotations(pod *corev1.Pod) {
	if pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows {
		return
	}
	var own *corev1.AppArmorProfile
	if pod.Spec.SecurityContext != nil {
		own = pod.Spec.SecurityContext.AppArmorProfile
	}
	for _, c := range Containers(&pod.Spec, nil) {
		text, ok := pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
		if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		profile := parseProfile(text)
		if profile == nil || equality.Semantic.DeepEqual(profile, own) {
			continue
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = profile
	}
}

// parseProfile is nil for what no valid profile says.
func parseProfile(text string) *corev1.AppArmorProfile {
	switch text {
	case corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	}
	name, ok := strings.CutPrefix(text, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	if !ok || name == "" || strings.TrimSpace(name) != name {
		return nil
	}
	return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: ptr.To(name)}
}
