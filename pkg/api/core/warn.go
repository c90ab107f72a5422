// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"crypto/tls"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/keelson/pkg/api/podspec"
)

// warnPod looks at new pods only: people seldom change them by hand.
func warnPod(_ context.Context, pod, old *corev1.Pod) []string {
	if old != nil {
		return nil
	}
	return append(podspec.WarnOfName(pod.Name, "the Pod's hostname"), podspec.Warn(nil, &pod.ObjectMeta, &pod.Spec)...)
}

func warnPodStatus(_ context.Context, pod, _ *corev1.Pod) []string {
	var warnings []string
	for i, ip := range pod.Status.PodIPs {
		warnings = append(warnings, validation.GetWarningsForIP(field.NewPath("status", "podIPs").Index(i).Child("ip"), ip.IP)...)
	}
	return warnings
}

func warnPodTemplate(_ context.Context, t, old *corev1.PodTemplate) []string {
	if old != nil && t.Generation == old.Generation {
		return nil
	}
	return podspec.WarnOfTemplate("", field.NewPath("template"), &t.Template)
}

func warnReplicationController(_ context.Context, rc, old *corev1.ReplicationController) []string {
	path := field.NewPath("spec", "template")
	switch {
	case old == nil:
		return podspec.WarnOfTemplate(rc.Name, path, rc.Spec.Template)
	case rc.Generation != old.Generation:
		return podspec.WarnOfTemplate("", path, rc.Spec.Template)
	}
	return nil
}

func warnEndpoints(_ context.Context, e, _ *corev1.Endpoints) []string {
	if e.Labels["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
		return nil // writes addresses as they should be
	}
	var warnings []string
	check := func(addresses []corev1.EndpointAddress, path *field.Path) {
		for i := range addresses {
			warnings = append(warnings, validation.GetWarningsForIP(path.Index(i).Child("ip"), addresses[i].IP)...)
		}
	}
	for i := range e.Subsets {
		path := field.NewPath("subsets").Index(i)
		check(e.Subsets[i].Addresses, path.Child("addresses"))
		check(e.Subsets[i].NotReadyAddresses, path.Child("notReadyAddresses"))
	}
	return warnings
}

// warnSecret tells of a certificate that its key does not fit.
func warnSecret(_ context.Context, s, _ *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

func warnServiceAccount(_ context.Context, sa, old *corev1.ServiceAccount) []string {
	const key = "kubernetes.io/enforce-mountable-secrets"
	if old != nil {
		if _, had := old.Annotations[key]; had {
			return nil
		}
	}
	if _, has := sa.Annotations[key]; !has {
		return nil
	}
	return []string{"metadata.annotations[" + key + "]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
}

func warnNode(_ context.Context, n, _ *corev1.Node) []string {
	var warnings []string
	if n.Spec.ConfigSource != nil {
		warnings = append(warnings, "spec.configSource: the feature is removed")
	}
	if n.Spec.DoNotUseExternalID != "" {
		warnings = append(warnings, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		warnings = append(warnings, validation.GetWarningsForCIDR(field.NewPath("spec", "podCIDRs").Index(i), cidr)...)
	}
	return warnings
}

// warnResourceQuota tells of quotas that allow more to be asked for than to be used.
func warnResourceQuota(_ context.Context, q, old *corev1.ResourceQuota) []string {
	if old != nil {
		return nil
	}
	var warnings []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage} {
		asked, used := "requests."+name, "limits."+name
		request, there := q.Spec.Hard[asked]
		if !there && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
			if request, there = q.Spec.Hard[name]; there {
				asked = name
			}
		}
		limit, limited := q.Spec.Hard[used]
		if there && limited && request.Cmp(limit) > 0 {
			warnings = append(warnings, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)", asked, request.String(), used, limit.String()))
		}
	}
	return warnings
}
