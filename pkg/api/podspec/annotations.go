// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
)

const appArmorPrefix = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix

// ValidateAnnotations judges the annotations that mean something for pods.
func ValidateAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var r report.Report
	if value, mirror := annotations[corev1.MirrorPodAnnotationKey]; mirror && spec.NodeName == "" {
		r.Invalid(path.Key(corev1.MirrorPodAnnotationKey), value, "must set spec.nodeName if mirror pod annotation is set")
	}
	if cost, ok := annotations[corev1.PodDeletionCost]; ok && !deletionCost(cost) {
		r.Invalid(path.Key(corev1.PodDeletionCost), cost, "must be a 32bit integer")
	}
	for _, key := range report.Keys(annotations) {
		name, ok := strings.CutPrefix(key, appArmorPrefix)
		if !ok {
			continue
		}
		if !hasContainer(spec, name) {
			r.Invalid(path.Key(key), name, "container not found")
		}
		profile := annotations[key]
		if profile != "" && parseProfile(profile) == nil && !strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix) {
			r.Invalid(path.Key(key), profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile))
		}
	}
	return r.Errors
}

// deletionCost is true of integers as they print: no sign, no leading zero.
func deletionCost(text string) bool {
	n, err := strconv.ParseInt(text, 10, 32)
	return err == nil && strconv.FormatInt(n, 10) == text
}

func hasContainer(spec *corev1.PodSpec, name string) bool {
	for _, c := range Containers(spec, nil) {
		if c.Name == name {
			return true
		}
	}
	return false
}

// ValidateAnnotationUpdate refuses changes of the annotations that a pod keeps
// for its life.
func ValidateAnnotationUpdate(pod, old *corev1.Pod, path *field.Path) field.ErrorList {
	var r report.Report
	for _, key := range report.Keys(old.Annotations) {
		if value, ok := pod.Annotations[key]; ok && value == old.Annotations[key] {
			continue
		}
		if strings.HasPrefix(key, appArmorPrefix) {
			r.Forbidden(path.Key(key), "may not remove or update AppArmor annotations")
		}
		if key == corev1.MirrorPodAnnotationKey {
			r.Forbidden(path.Key(key), "may not remove or update mirror pod annotation")
		}
	}
	for _, key := range report.Keys(pod.Annotations) {
		if _, ok := old.Annotations[key]; ok {
			continue
		}
		if strings.HasPrefix(key, appArmorPrefix) {
			r.Forbidden(path.Key(key), "may not add AppArmor annotations")
		}
		if key == corev1.MirrorPodAnnotationKey {
			r.Forbidden(path.Key(key), "may not add mirror pod annotation")
		}
	}
	r.Add(ValidateAnnotations(pod.Annotations, &pod.Spec, path)...)
	return r.Errors
}
