// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package customresources

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeversion "k8s.io/apimachinery/pkg/version"

	"keelson.dev/apiserver/resource"
)

// warnings returns warnings about added finalizers whose names may conflict with others.
func warnings(_ context.Context, obj, old resource.Object) []string {
	var known, out []string
	if old != nil {
		known = old.GetFinalizers()
	}
	added := slices.Compact(slices.Sorted(slices.Values(obj.GetFinalizers())))
	for _, f := range added {
		if !slices.Contains(known, f) {
			out = append(out, finalizerWarnings(f)...)
		}
	}
	return out
}

func finalizerWarnings(name string) []string {
	const path = "metadata.finalizers"
	var out []string
	for _, msg := range validation.IsQualifiedName(name) {
		out = append(out, fmt.Sprintf("%s: %q: %s", path, name, msg))
	}
	switch name {
	case metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, string(corev1.FinalizerKubernetes):
		return out
	}
	switch {
	case strings.Contains(name, "/"):
	case strings.Contains(name, "."):
		out = append(out, fmt.Sprintf("%s: %q: prefer a domain-qualified finalizer name including a path "+
			"(/) to avoid accidental conflicts with other finalizer writers", path, name))
	default:
		out = append(out, fmt.Sprintf("%s: %q: prefer a domain-qualified finalizer name to avoid accidental "+
			"conflicts with other finalizer writers", path, name))
	}
	return out
}

// deprecation returns the warning for requests in version v, or "" if v is not deprecated.
func deprecation(crd *apiextensionsv1.CustomResourceDefinition,
	v *apiextensionsv1.CustomResourceDefinitionVersion) string {
	switch {
	case !v.Deprecated:
		return ""
	case v.DeprecationWarning != nil:
		return *v.DeprecationWarning
	}
	best := ""
	for i := range crd.Spec.Versions {
		other := &crd.Spec.Versions[i]
		if !other.Served || other.Deprecated || kubeversion.CompareKubeAwareVersionStrings(v.Name, other.Name) >= 0 {
			continue
		}
		if best == "" || kubeversion.CompareKubeAwareVersionStrings(other.Name, best) > 0 {
			best = other.Name
		}
	}
	msg := fmt.Sprintf("%s/%s %s is deprecated", crd.Spec.Group, v.Name, crd.Spec.Names.Kind)
	if best != "" {
		msg += fmt.Sprintf("; use %s/%s %s", crd.Spec.Group, best, crd.Spec.Names.Kind)
	}
	return msg
}
