// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestRefersTo(t *testing.T) {
	volume := func(v corev1.VolumeSource) corev1.PodSpec {
		return corev1.PodSpec{
			Volumes: []corev1.Volume{
				{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "v", VolumeSource: v}}}
	}
	projected := func(p corev1.VolumeProjection) corev1.PodSpec {
		return volume(corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{}}, p}}})
	}
	name := "t"
	for want, spec := range map[string]corev1.PodSpec{
		` <nil>`:                {},
		`serviceaccounts <nil>`: {ServiceAccountName: "a", ResourceClaims: []corev1.PodResourceClaim{{}}},
		`secrets <nil>`: volume(
			corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: &corev1.LocalObjectReference{Name: "s"}}}),
		`configmaps <nil>`: projected(
			corev1.VolumeProjection{
				ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}),
		`resourceclaims <nil>`: {
			ResourceClaims: []corev1.PodResourceClaim{{Name: "r", ResourceClaimTemplateName: &name}}},
		`secrets (via secret volumes) <nil>`: volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}),
		`csidrivers (via CSI volumes) <nil>`: volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}),
		`persistentvolumeclaims (via ephemeral volumes) <nil>`: volume(
			corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}),
		`serviceaccounts (via projected volumes) <nil>`: projected(
			corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}),
		`clustertrustbundles <nil>`: projected(
			corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}),
		` unknown source for projected volume "v"`: projected(corev1.VolumeProjection{}),
		`endpoints (via glusterFS volumes) <nil>`: volume(
			corev1.VolumeSource{Glusterfs: &corev1.GlusterfsVolumeSource{}}),
	} {
		t.Run(want, func(t *testing.T) {
			kind, err := refersTo(&corev1.Pod{Spec: spec})
			if got := fmt.Sprintf("%s %v", kind, err); got != want {
				t.Errorf("got %q", got)
			}
		})
	}
}
