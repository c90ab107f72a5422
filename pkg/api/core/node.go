// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// nodeRow returns the row of the kind table for the resource nodes.
func nodeRow(proxy resource.ConnectFunc) *resource.Row {
	return resource.Of[corev1.NodeList](resource.Kind[*corev1.Node]{
		Group: "", Version: "v1", Resource: "nodes", Kind: "Node",
		ShortNames:    []string{"no"},
		StoragePrefix: "minions",

		Default:                  defaultNode,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		PrepareCreate:            prepareNodeCreate,
		Validate:                 validateNode,
		PrepareUpdate:            prepareNodeUpdate,
		ValidateUpdate:           validateNodeUpdate,
		Warnings:                 warnNode,
		Fields:                   nodeFields,
		FieldPaths:               []string{"spec.unschedulable"},
		SelectableFields:         []string{"spec.unschedulable"},
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Status", Type: "string", Description: "The status of the node"},
			{Name: "Roles", Type: "string", Description: "The roles of the node"},
			column.Age(),
			{Name: "Version", Type: "string", Description: corev1.NodeSystemInfo{}.SwaggerDoc()["kubeletVersion"]},
			{Name: "Internal-IP", Type: "string", Description: corev1.NodeStatus{}.SwaggerDoc()["addresses"],
				Priority: column.Wide},
			{Name: "External-IP", Type: "string", Description: corev1.NodeStatus{}.SwaggerDoc()["addresses"],
				Priority: column.Wide},
			{Name: "OS-Image", Type: "string", Description: corev1.NodeSystemInfo{}.SwaggerDoc()["osImage"],
				Priority: column.Wide},
			{Name: "Kernel-Version", Type: "string",
				Description: corev1.NodeSystemInfo{}.SwaggerDoc()["kernelVersion"], Priority: column.Wide},
			{Name: "Container-Runtime", Type: "string",
				Description: corev1.NodeSystemInfo{}.SwaggerDoc()["containerRuntimeVersion"], Priority: column.Wide},
		},
		Cells: nodeCells,

		Subresources: []resource.Sub[*corev1.Node]{
			{Subresource: resource.Subresource{Name: "proxy",
				Verbs: []string{"create", "delete", "get", "patch", "update"},
				Kind:  schema.GroupVersionKind{Version: "v1", Kind: "NodeProxyOptions"}, Connect: proxy,
				Traffic: resource.Proxied}},
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: prepareNodeStatus, ValidateUpdate: validateNodeStatus},
		},
	})
}

func defaultNode(n *corev1.Node) {
	switch one, all := n.Spec.PodCIDR, n.Spec.PodCIDRs; {
	case one != "" && (len(all) == 0 || all[0] != one): // older clients set only podCIDR
		n.Spec.PodCIDRs = []string{one}
	case one == "" && len(all) > 0:
		n.Spec.PodCIDR = all[0]
	}
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	podspec.Milli(n.Status.Capacity)
	podspec.Milli(n.Status.Allocatable)
}

// prepareNodeCreate clears the fields for dynamic kubelet configuration, which is no longer
// supported. It keeps the rest of the status, because a kubelet sends a status when it registers
// its node.
func prepareNodeCreate(_ context.Context, n *corev1.Node) {
	n.Spec.ConfigSource, n.Status.Config = nil, nil
	n.Spec.PodPreemptionPolicy = nil
}

func prepareNodeUpdate(_ context.Context, n, old *corev1.Node) {
	n.Status = old.Status
	if old.Spec.ConfigSource == nil {
		n.Spec.ConfigSource = nil
	}
	if old.Spec.PodPreemptionPolicy == nil {
		n.Spec.PodPreemptionPolicy = nil
	}
}

func prepareNodeStatus(_ context.Context, n, old *corev1.Node) {
	n.Spec = old.Spec
	if old.Status.Config == nil {
		n.Status.Config = nil
	}
}

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
		r.Add(podspec.ValidateQuantity(name, n.Status.Allocatable[name],
			field.NewPath("status", "allocatable", string(name)))...)
	}
}

// checkFeatures requires that the names of declared features are valid, sorted and without
// duplicates.
func checkFeatures(r *report.Report, features []string, path *field.Path) {
	form := regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(\/[a-zA-Z][a-zA-Z0-9]*)*$`)
	for i, name := range features {
		if len(name) > 253 {
			r.Invalid(path.Index(i), name, fmt.Sprintf("invalid feature name %q: must be no more than 253 characters", name))
		} else if !form.MatchString(name) {
			r.Invalid(path.Index(i), name, fmt.Sprintf("invalid feature name %q: must start with an "+
				"UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or "+
				"MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", name))
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

// checkTaints validates taints. path is below metadata, as in Kubernetes, although taints are in
// the spec.
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
	return append(validateNode(ctx, n), validateNodeStatus(ctx, n, old)...)
}

// validateNodeStatus validates an update of a node. Although it is called for updates of the
// status, too, it also checks spec and metadata.
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
	switch was := old.Spec.ProviderID; n.Spec.ProviderID {
	case was:
	case "":
		r.Invalid(field.NewPath("spec", "providerID"), nil, "field cannot be cleared once set")
	default:
		if was != "" {
			r.Invalid(field.NewPath("spec", "providerID"), nil, "field cannot be modified once set")
		}
	}
	checkTaints(&r, n.Spec.Taints, field.NewPath("metadata", "taints"))
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		r.Forbidden(field.NewPath("spec", "externalID"), "may not be updated")
	}
	return r.Errors
}

// checkNodeAnnotations validates annotations that components no longer use.
func checkNodeAnnotations(r *report.Report, annotations map[string]string) {
	path := field.NewPath("metadata", "annotations")
	if text := annotations[corev1.TaintsAnnotationKey]; text != "" {
		var taints []corev1.Taint
		if err := podspec.ReadAnnotation(text, &taints); err != nil {
			r.Invalid(path, corev1.TaintsAnnotationKey, err.Error())
		}
		checkTaints(r, taints, path.Child(corev1.TaintsAnnotationKey))
	}
	if text := annotations[corev1.PreferAvoidPodsAnnotationKey]; text != "" {
		var avoid corev1.AvoidPods
		// Kubernetes decodes this annotation into the v1 type, so unlike in ReadAnnotation, the
		// text of a decoding error needs no change.
		if err := json.Unmarshal([]byte(text), &avoid); err != nil {
			r.Invalid(path.Child("AvoidPods"), corev1.PreferAvoidPodsAnnotationKey, err.Error())
		}
		for i, entry := range avoid.PreferAvoidPods {
			at := path.Child(corev1.PreferAvoidPodsAnnotationKey).Index(i).Child("PodSignature")
			switch owner := entry.PodSignature.PodController; {
			case owner == nil:
				r.Required(at, "")
			case owner.Controller == nil || !*owner.Controller:
				r.Invalid(at.Child("PodController", "Controller"), false, "must point to a controller")
			}
		}
	}
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

const (
	rolePrefix = "node-role.kubernetes.io/"
	roleLabel  = "kubernetes.io/role"
)

func nodeCells(n *corev1.Node, env resource.CellEnv) []any {
	info := &n.Status.NodeInfo
	kernel := orUnknown(info.KernelVersion)
	if info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	return []any{
		n.Name, nodeStatus(n), column.OrNone(nodeRoles(n)), env.Age(n.CreationTimestamp), info.KubeletVersion,
		nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
		orUnknown(info.OSImage), kernel, orUnknown(info.ContainerRuntimeVersion),
	}
}

// nodeStatus returns the status text of a node. It depends on the last condition of type Ready, and
// on whether the node is unschedulable.
func nodeStatus(n *corev1.Node) string {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		status = "NotReady"
		if c.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(n *corev1.Node) string {
	var roles []string
	for label, value := range n.Labels {
		if role, ok := strings.CutPrefix(label, rolePrefix); ok && role != "" {
			roles = append(roles, role)
		} else if label == roleLabel && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	return strings.Join(slices.Compact(roles), ",")
}

func nodeAddress(n *corev1.Node, kind corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == kind {
			return a.Address
		}
	}
	return column.None
}

func orUnknown(s string) string {
	if s == "" {
		return "<unknown>"
	}
	return s
}

func nodeFields(n *corev1.Node) fields.Set {
	return fields.Set{"spec.unschedulable": strconv.FormatBool(n.Spec.Unschedulable)}
}
