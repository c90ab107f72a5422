// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// serviceRow returns the row of the kind table for the resource services.
func serviceRow(allocator ServiceAllocator, proxy resource.ConnectFunc) *resource.Row {
	parts := strategy.Parts[corev1.Service, corev1.ServiceSpec,
		corev1.ServiceStatus](func(o *corev1.Service) (*corev1.ServiceSpec, *corev1.ServiceStatus) {
		return &o.Spec, &o.Status
	})
	k := resource.Kind[*corev1.Service]{
		Group: "", Version: "v1", Resource: "services", Kind: "Service", Namespaced: true,
		ShortNames: []string{"svc"}, Categories: []string{"all"},
		StoragePrefix: "services/specs",

		Default:                  defaultService,
		Canonicalize:             canonicalizeService,
		PrepareCreate:            parts.ClearStatus,
		Validate:                 validateService,
		PrepareUpdate:            prepareServiceUpdate,
		ValidateUpdate:           validateServiceUpdate,
		Warnings:                 warnService,
		ValidateName:             nameService,
		Fields:                   serviceFields,
		FieldPaths:               []string{"spec.clusterIP", "spec.type"},
		SelectableFields:         []string{"spec.clusterIP", "spec.type"},
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		ReturnDeleted:            true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Type", Type: "string", Description: corev1.ServiceSpec{}.SwaggerDoc()["type"]},
			{Name: "Cluster-IP", Type: "string", Description: corev1.ServiceSpec{}.SwaggerDoc()["clusterIP"]},
			{Name: "External-IP", Type: "string", Description: corev1.ServiceSpec{}.SwaggerDoc()["externalIPs"]},
			{Name: "Port(s)", Type: "string", Description: corev1.ServiceSpec{}.SwaggerDoc()["ports"]},
			column.Age(),
			{Name: "Selector", Type: "string", Description: corev1.ServiceSpec{}.SwaggerDoc()["selector"],
				Priority: column.Wide},
		},
		Cells: serviceCells,

		Subresources: []resource.Sub[*corev1.Service]{
			{Subresource: resource.Subresource{Name: "proxy",
				Verbs: []string{"create", "delete", "get", "patch", "update"},
				Kind:  schema.GroupVersionKind{Version: "v1", Kind: "ServiceProxyOptions"}, Connect: proxy,
				Traffic: resource.Proxied}},
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec,
				ValidateUpdate: validateServiceStatus, Warnings: warnServiceStatus},
		},
	}
	if allocator != nil {
		k.Hooks, k.Restore = allocator.Hooks(), allocator.Restore
		k.DefaultsChanged = true // clusterIPs and the fields about IP families are from 1.20
	}
	return resource.Of[corev1.ServiceList](k)
}

func nameService(name string, prefix bool) []string { return naming.NameIsDNSLabel(name, prefix) }

// defaultService sets the defaults that do not depend on the cluster. Addresses, IP families and
// node ports depend on it; the service allocator sets them.
func defaultService(svc *corev1.Service) {
	spec := &svc.Spec
	unset.Fill(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
	unset.Fill(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		unset.Fill(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if reachableFromOutside(spec) {
		unset.Fill(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeClusterIP || hasNodePorts(spec) {
		unset.Point(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		unset.Point(&spec.AllocateLoadBalancerNodePorts, true)
		for i := range svc.Status.LoadBalancer.Ingress {
			if ingress := &svc.Status.LoadBalancer.Ingress[i]; ingress.IP != "" {
				unset.Point(&ingress.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

func reachableFromOutside(spec *corev1.ServiceSpec) bool {
	return hasNodePorts(spec) || spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0
}

func hasNodePorts(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
}

// prepareServiceUpdate keeps the status. If the new type of the service does not have a field that
// the old type had, it clears the field, unless the client has changed the field. Validation then
// rejects the change.
func prepareServiceUpdate(_ context.Context, svc, old *corev1.Service) {
	svc.Status = old.Status
	spec, was := &svc.Spec, &old.Spec
	if was.Type != corev1.ServiceTypeExternalName && spec.Type == corev1.ServiceTypeExternalName {
		forgetClusterIPs(spec, was)
	}
	if hasNodePorts(was) && !hasNodePorts(spec) && onlyOldNodePorts(spec, was) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if hasHealthPort(was) && !hasHealthPort(spec) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if reachableFromOutside(was) && !reachableFromOutside(spec) &&
		spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		forgetLoadBalancer(svc, old)
	}
}

// canonicalizeService clears the internal traffic policy of a service of type ExternalName, as
// Kubernetes does. Such a service has no addresses in the cluster.
func canonicalizeService(svc *corev1.Service) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		svc.Spec.InternalTrafficPolicy = nil
	}
}

func forgetClusterIPs(spec, was *corev1.ServiceSpec) {
	if spec.ClusterIP == was.ClusterIP && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
		spec.ClusterIP, spec.ClusterIPs = "", nil
	}
	if slices.Equal(spec.IPFamilies, was.IPFamilies) {
		spec.IPFamilies = nil
	}
	if ptr.Equal(spec.IPFamilyPolicy, was.IPFamilyPolicy) {
		spec.IPFamilyPolicy = nil
	}
}

func forgetLoadBalancer(svc, old *corev1.Service) {
	if old.Spec.Type == corev1.ServiceTypeLoadBalancer {
		if ptr.Equal(svc.Spec.AllocateLoadBalancerNodePorts, old.Spec.AllocateLoadBalancerNodePorts) {
			svc.Spec.AllocateLoadBalancerNodePorts = nil
		}
		if ptr.Equal(svc.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
			svc.Spec.LoadBalancerClass = nil
		}
	}
	svc.Status.LoadBalancer = corev1.LoadBalancerStatus{}
}

func onlyOldNodePorts(spec, was *corev1.ServiceSpec) bool {
	for _, port := range spec.Ports {
		old := func(p corev1.ServicePort) bool { return p.NodePort == port.NodePort }
		if port.NodePort != 0 && !slices.ContainsFunc(was.Ports, old) {
			return false
		}
	}
	return true
}

func hasHealthPort(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer &&
		spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func warnService(_ context.Context, s, _ *corev1.Service) []string {
	var warnings []string
	spec, path := &s.Spec, field.NewPath("spec")
	if _, there := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; there {
		warnings = append(warnings, fmt.Sprintf("annotation %s is deprecated, please use %s instead",
			corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	}
	if spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone {
		for i, ip := range spec.ClusterIPs {
			warnings = append(warnings, validation.GetWarningsForIP(path.Child("clusterIPs").Index(i), ip)...)
		}
	}
	headless := spec.Type == corev1.ServiceTypeClusterIP && spec.ClusterIP == corev1.ClusterIPNone
	if headless {
		warnings = append(warnings, warnHeadless(spec)...)
	}
	for i, ip := range spec.ExternalIPs {
		warnings = append(warnings, validation.GetWarningsForIP(path.Child("externalIPs").Index(i), ip)...)
	}
	external := spec.Type == corev1.ServiceTypeExternalName
	if len(spec.ExternalIPs) > 0 && !headless && !external {
		warnings = append(warnings, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if spec.LoadBalancerIP != "" {
		warnings = append(warnings, validation.GetWarningsForIP(path.Child("loadBalancerIP"), spec.LoadBalancerIP)...)
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		warnings = append(warnings, validation.GetWarningsForCIDR(path.Child("loadBalancerSourceRanges").Index(i), cidr)...)
	}
	if external && len(spec.ExternalIPs) > 0 {
		warnings = append(warnings, fmt.Sprintf("spec.externalIPs is ignored when spec.type is %q",
			corev1.ServiceTypeExternalName))
	}
	if !external && spec.ExternalName != "" {
		warnings = append(warnings, fmt.Sprintf("spec.externalName is ignored when spec.type is not %q",
			corev1.ServiceTypeExternalName))
	}
	if d := spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		warnings = append(warnings, fmt.Sprintf("spec.trafficDistribution: %q is deprecated; use %q",
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone))
	}
	return warnings
}

func warnHeadless(spec *corev1.ServiceSpec) []string {
	var warnings []string
	if spec.LoadBalancerIP != "" {
		warnings = append(warnings, "spec.loadBalancerIP is ignored for headless services")
	}
	if len(spec.ExternalIPs) > 0 {
		warnings = append(warnings, "spec.externalIPs is ignored for headless services")
	}
	if spec.SessionAffinity != corev1.ServiceAffinityNone {
		warnings = append(warnings, "spec.SessionAffinity is ignored for headless services")
	}
	return warnings
}

func warnServiceStatus(_ context.Context, s, _ *corev1.Service) []string {
	var warnings []string
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			warnings = append(warnings,
				validation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(i), ingress.IP)...)
		}
	}
	return warnings
}

func serviceCells(svc *corev1.Service, env resource.CellEnv) []any {
	ip := column.None
	if len(svc.Spec.ClusterIPs) > 0 {
		ip = svc.Spec.ClusterIPs[0]
	}
	return []any{
		svc.Name, string(svc.Spec.Type), ip, externalAddress(svc), column.OrNone(servicePorts(svc.Spec.Ports)),
		env.Age(svc.CreationTimestamp), labels.FormatLabels(svc.Spec.Selector),
	}
}

func externalAddress(svc *corev1.Service) string {
	switch svc.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return column.OrNone(strings.Join(svc.Spec.ExternalIPs, ","))
	case corev1.ServiceTypeLoadBalancer:
		found := sets.New[string]()
		for _, ingress := range svc.Status.LoadBalancer.Ingress {
			if ingress.IP != "" {
				found.Insert(ingress.IP)
			} else if ingress.Hostname != "" {
				found.Insert(ingress.Hostname)
			}
		}
		if all := append(sets.List(found), svc.Spec.ExternalIPs...); len(all) > 0 {
			return strings.Join(all, ",")
		}
		return "<pending>"
	case corev1.ServiceTypeExternalName:
		return svc.Spec.ExternalName
	default:
		return "<unknown>"
	}
}

func servicePorts(ports []corev1.ServicePort) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.NodePort > 0 {
			texts[i] = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
	}
	return strings.Join(texts, ",")
}

func serviceFields(svc *corev1.Service) fields.Set {
	return fields.Set{"spec.clusterIP": svc.Spec.ClusterIP, "spec.type": string(svc.Spec.Type)}
}
