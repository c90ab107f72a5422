// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

func validateNode(_ context.Context, n *corev1.Node) field.ErrorList {
	var r report.Report
	checkNodeAnnotations(&r, n.Annotations)
	checkTaints(&r, n.Spec.Taints, field.NewPath("metadata", "taints"))
	checkNodeResources(&r, n)
	if swap := n.Status.NodeInfo.Swap; swap != nil && swap.Capacity != nil {
		r.Positive(field.NewPath("metadata", "nodeSwapStatus", "capacity"), *swap.Capacity)
	}
	checkFeatures(&r, n.Status.DeclaredFeatures, field.NewPath("status", "declaredFeatures"))
	cidrs, path := n.Spec.PodCIDRs, field.NewPath("spec", "podCIDRs")
	for i, cidr := range cidrs {
		r.Add(validation.IsValidCIDRForLegacyField(path.Index(i), cidr, true, nil)...)
	}
	if len(cidrs) > 1 {
		dual, err := netutils.IsDualStackCIDRStrings(cidrs)
		if err != nil {
			r.Add(field.InternalError(path, fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%w", err)))
		}
		if !dual || len(cidrs) > 2 {
			r.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family")
		}
	}
	return r.Errors
}

func checkNodeResources(r *report.Report, n *corev1.Node) {
	for _, name := range report.Keys(n.Status.Capacity) {
		r.Add(podspec.ValidateQuantity(name, n.Status.Capacity[name], field.NewPath("status", "capacity", string(name)))...)
	}
	for _, name := range report.Keys(n.Status.Allocatable) {
		r.Add(podspec.ValidateQuantity(name, n.Status.Allocatable[name], field.NewPath("status", "allocatable", string(name)))...)
	}
}

// checkFeatures wants names of features in order, each once.
func checkFeatures(r *report.Report, features []string, path *field.Path) {
	form := regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(\/[a-zA-Z][a-zA-Z0-9]*)*$`)
	for i, name := range features {
		if len(name) > 253 {
			r.Invalid(path.Index(i), name, fmt.Sprintf("invalid feature name %q: must be no more than 253 characters", name))
		} else if !form.MatchString(name) {
			r.Invalid(path.Index(i), name, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", name))
		}
		if i+1 == len(features) {
			break
		}
		switch next := features[i+1]; {
		case name == next:
			r.Duplicate(path.Index(i+1), next)
		case name > next:
			r.Invalid(path.Index(i+1), next, "list must be sorted alphabetically")
		}
	}
}

// checkTaints names taints below the metadata, as Kubernetes does.
func checkTaints(r *report.Report, taints []corev1.Taint, path *field.Path) {
	seen := sets.New[string]()
	for i, t := range taints {
		at := path.Index(i)
		r.LabelName(at.Child("key"), t.Key)
		if reasons := naming.IsValidLabelValue(t.Value); len(reasons) > 0 {
			r.Invalid(at.Child("value"), t.Value, strings.Join(reasons, ";"))
		}
		if t.Effect == "" {
			r.Required(at.Child("effect"), "")
		} else {
			podspec.ValidateTaintEffect(r, t.Effect, at.Child("effect"))
		}
		key := string(t.Effect) + "/" + t.Key
		if seen.Has(key) {
			err := field.Duplicate(at, t)
			err.Detail = "taints must be unique by key and effect pair"
			r.Add(err)
		}
		seen.Insert(key)
	}
}

func validateNodeUpdate(ctx context.Context, n, old *corev1.Node) field.ErrorList {
	return slices.Concat(validateNode(ctx, n), field.ErrorList{resource.MetaHere()}, validateNodeStatus(ctx, n, old))
}

// validateNodeStatus judges what changed of a node, in its status or beside it.
func validateNodeStatus(_ context.Context, n, old *corev1.Node) field.ErrorList {
	var r report.Report
	checkNodeAnnotations(&r, n.Annotations)
	checkNodeResources(&r, n)
	checkFeatures(&r, n.Status.DeclaredFeatures, field.NewPath("status", "declaredFeatures"))
	seen := sets.New[corev1.NodeAddress]()
	for i, address := range n.Status.Addresses {
		if seen.Has(address) {
			r.Duplicate(field.NewPath("status", "addresses").Index(i), address)
		}
		seen.Insert(address)
	}
	const onlyOnce = "node updates may not change podCIDR except from \"\" to valid"
	if was := old.Spec.PodCIDRs; len(was) > 0 && !slices.Equal(was, n.Spec.PodCIDRs) {
		r.Forbidden(field.NewPath("spec", "podCIDRs"), onlyOnce)
	}
	if was := old.Spec.ProviderID; was != "" && was != n.Spec.ProviderID {
		r.Forbidden(field.NewPath("spec", "providerID"), "node updates may not change providerID except from \"\" to valid")
	}
	checkTaints(&r, n.Spec.Taints, field.NewPath("metadata", "taints"))
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		r.Forbidden(field.NewPath("spec", "externalID"), "may not be updated")
	}
	return r.Errors
}
