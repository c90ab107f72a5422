// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// ProfilesFromAnnotations gives containers the AppArmor profile that an
// annotation of older clients names, where no field does, and warns of those
// annotations that no field repeats.
func ProfilesFromAnnotations(pod *corev1.Pod) []string {
	if pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows {
		return nil
	}
	var warnings cautions
	var own *corev1.AppArmorProfile
	if pod.Spec.SecurityContext != nil {
		own = pod.Spec.SecurityContext.AppArmorProfile
	}
	for _, c := range Containers(&pod.Spec, nil) {
		key := appArmorPrefix + c.Name
		text, ok := pod.Annotations[key]
		if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		profile := parseProfile(text)
		if profile != nil && equality.Semantic.DeepEqual(profile, own) {
			continue
		}
		warnings.say(field.NewPath("metadata", "annotations").Key(key), "%s", appArmorMoved)
		if profile == nil {
			continue
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = profile
	}
	return warnings
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
