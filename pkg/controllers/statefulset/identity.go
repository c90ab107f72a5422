// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulset

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/controllers/controller"
)

// parsePodName splits the name of a pod into the name of its set and its ordinal. ok is false if
// the name does not have this form.
func parsePodName(pod string) (set string, ordinal int, ok bool) {
	i := strings.LastIndexByte(pod, '-')
	if i < 0 {
		return "", 0, false
	}
	digits := pod[i+1:]
	if strings.Trim(digits, "0123456789") != "" {
		return "", 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return "", 0, false
	}
	return pod[:i], int(n), true
}

// isMember reports whether a pod has the name that the StatefulSet gives to one of its pods.
// Ordinals with leading zeros are not valid, so there is only one name for each ordinal.
func isMember(set *appsv1.StatefulSet, pod *v1.Pod) bool {
	_, n, ok := parsePodName(pod.Name)
	return ok && pod.Name == podName(set, n)
}

// ordinalOf returns the ordinal in the name of a pod, for which isMember must be true.
func ordinalOf(pod *v1.Pod) int {
	_, n, _ := parsePodName(pod.Name)
	return n
}

func startOrdinal(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

func replicaCount(set *appsv1.StatefulSet) int { return int(*set.Spec.Replicas) }

// inRange reports whether the StatefulSet should have a pod with this ordinal.
func inRange(set *appsv1.StatefulSet, ordinal int) bool {
	return ordinal >= startOrdinal(set) && ordinal < startOrdinal(set)+replicaCount(set)
}

func podName(set *appsv1.StatefulSet, ordinal int) string {
	return set.Name + "-" + strconv.Itoa(ordinal)
}

func claimName(set *appsv1.StatefulSet, template string, ordinal int) string {
	return template + "-" + podName(set, ordinal)
}

// placeholder returns an object that stands for a missing pod in a plan. The pod must be created
// with the given ordinal and revision.
func placeholder(set *appsv1.StatefulSet, r revision, ordinal int) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: set.Namespace, Name: podName(set, ordinal),
		Labels: map[string]string{appsv1.StatefulSetRevisionLabel: r.name},
	}}
}

// newPod returns the pod with the given ordinal, from the template in the given revision.
func newPod(set *appsv1.StatefulSet, r revision, ordinal int) *v1.Pod {
	pod := controller.NewPodFromTemplate(r.template, set, kind)
	pod.GenerateName = ""
	pod.Name = podName(set, ordinal)
	// These two fields are immutable, so setIdentity does not correct them later.
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, set.Spec.ServiceName
	setIdentity(pod)
	setVolumes(set, pod)
	pod.Labels[appsv1.StatefulSetRevisionLabel] = r.name
	return pod
}

// hasIdentity reports whether a pod of a StatefulSet has the label with its own name.
func hasIdentity(pod *v1.Pod) bool { return pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name }

// setIdentity sets the labels with a pod's name and ordinal.
func setIdentity(pod *v1.Pod) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(ordinalOf(pod))
}

// hasVolumes reports whether a pod has a volume for each of its claims.
func hasVolumes(set *appsv1.StatefulSet, pod *v1.Pod) bool {
	for i := range set.Spec.VolumeClaimTemplates {
		template := set.Spec.VolumeClaimTemplates[i].Name
		found := false
		for _, v := range pod.Spec.Volumes {
			if v.Name == template { // if several volumes have this name, the last one counts
				found = v.PersistentVolumeClaim != nil &&
					v.PersistentVolumeClaim.ClaimName == claimName(set, template, ordinalOf(pod))
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// setVolumes adds a volume for each of a pod's claims. It replaces volumes with the same names.
func setVolumes(set *appsv1.StatefulSet, pod *v1.Pod) {
	ours := map[string]bool{}
	var volumes []v1.Volume
	for i := range set.Spec.VolumeClaimTemplates {
		template := set.Spec.VolumeClaimTemplates[i].Name
		ours[template] = true
		volumes = append(volumes, v1.Volume{Name: template, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(set, template, ordinalOf(pod))},
		}})
	}
	for _, v := range pod.Spec.Volumes {
		if !ours[v.Name] {
			volumes = append(volumes, v)
		}
	}
	pod.Spec.Volumes = volumes
}

// revisionOf returns the name of the revision that a pod was created from.
func revisionOf(pod *v1.Pod) string { return pod.Labels[appsv1.StatefulSetRevisionLabel] }
