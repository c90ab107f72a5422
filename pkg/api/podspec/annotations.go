// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/report"
)

const appArmorPrefix = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix

// ValidateAnnotations validates those annotations of a pod or template that have a meaning for
// pods.
func ValidateAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var r report.Report
	if value, mirror := annotations[corev1.MirrorPodAnnotationKey]; mirror && spec.NodeName == "" {
		r.Invalid(path.Key(corev1.MirrorPodAnnotationKey), value, "must set spec.nodeName if mirror pod annotation is set")
	}
	if text := annotations[corev1.TolerationsAnnotationKey]; text != "" {
		var tolerations []corev1.Toleration
		if err := ReadAnnotation(text, &tolerations); err != nil {
			r.Invalid(path, corev1.TolerationsAnnotationKey, err.Error())
		}
		r.Add(ValidateTolerations(tolerations, path.Child(corev1.TolerationsAnnotationKey))...)
	}
	if cost, ok := annotations[corev1.PodDeletionCost]; ok && !deletionCost(cost) {
		r.Invalid(path.Key(corev1.PodDeletionCost), cost, "must be a 32bit integer")
	}
	if profile, ok := annotations[corev1.SeccompPodAnnotationKey]; ok {
		checkOldSeccomp(&r, profile, path.Child(corev1.SeccompPodAnnotationKey))
	}
	for _, key := range report.Keys(annotations) {
		if strings.HasPrefix(key, corev1.SeccompContainerAnnotationKeyPrefix) {
			checkOldSeccomp(&r, annotations[key], path.Child(key))
		}
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
		if profile != "" && parseProfile(profile) == nil &&
			!strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix) {
			r.Invalid(path.Key(key), profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile))
		}
	}
	return r.Errors
}

// ReadAnnotation decodes the JSON value of an annotation that a field has replaced. As in
// Kubernetes, a decoding error names the type as the internal version does ("core." instead of
// "v1.").
func ReadAnnotation(text string, into any) error {
	err := json.Unmarshal([]byte(text), into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Struct == "" {
		return errors.New(strings.ReplaceAll(err.Error(), "v1.", "core."))
	}
	return err
}

// checkOldSeccomp validates the seccomp profile in an annotation. Fields have replaced the
// annotation, which no longer has an effect.
func checkOldSeccomp(r *report.Report, profile string, path *field.Path) {
	local, ok := strings.CutPrefix(profile, corev1.SeccompLocalhostProfileNamePrefix)
	switch {
	case ok:
		c := &check{}
		c.checkDescends(local, path)
		r.Add(c.Errors...)
	case profile != corev1.SeccompProfileRuntimeDefault &&
		profile != corev1.DeprecatedSeccompProfileDockerDefault && profile != corev1.SeccompProfileNameUnconfined:
		r.Invalid(path, profile, "must be a valid seccomp profile")
	}
}

// deletionCost reports whether text is a 32-bit integer without plus sign and leading zeros.
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

// ValidateAnnotationUpdate rejects changes of the annotations that are immutable.
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
