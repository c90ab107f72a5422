// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"keelson.dev/keelson/pkg/api/podspec"
	"keelson.dev/keelson/pkg/api/report"
)

func validateService(_ context.Context, svc *corev1.Service) field.ErrorList {
	if errs := ClusterIPErrors(&svc.Spec, &corev1.ServiceSpec{}); len(errs) > 0 {
		return errs
	}
	return validateServiceContent(svc, &corev1.Service{})
}

// validateServiceContent validates a service. Values that old has too need only comply with older,
// weaker rules. On create, old is empty.
func validateServiceContent(svc, old *corev1.Service) field.ErrorList {
	var r report.Report
	spec, path := &svc.Spec, field.NewPath("spec")
	headless := isHeadless(spec)
	checkTopologyAnnotations(&r, svc)
	if len(spec.Ports) == 0 && !headless && spec.Type != corev1.ServiceTypeExternalName {
		r.Required(path.Child("ports"), "")
	}
	checkServiceType(&r, spec, path)
	names := sets.New[string]()
	for i := range spec.Ports {
		checkServicePort(&r, &spec.Ports[i], len(spec.Ports) > 1, names, path.Child("ports").Index(i))
	}
	r.Labels(path.Child("selector"), spec.Selector)
	report.OneOfRequired(&r, path.Child("sessionAffinity"), spec.SessionAffinity,
		corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	checkAffinityConfig(&r, spec, path.Child("sessionAffinityConfig"))
	if spec.Type != corev1.ServiceTypeExternalName {
		checkClusterIPs(&r, spec, &old.Spec, path)
	}
	for i, ip := range spec.ExternalIPs {
		at := path.Child("externalIPs").Index(i)
		if errs := validation.IsValidIPForLegacyField(at, ip, true, old.Spec.ExternalIPs); len(errs) > 0 {
			r.Add(errs...)
		} else {
			r.EndpointIP(at, ip)
		}
	}
	report.OneOfRequired(&r, path.Child("type"), spec.Type,
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer,
		corev1.ServiceTypeNodePort)
	checkPortNumbers(&r, spec, path.Child("ports"))
	checkSourceRanges(&r, svc, old)
	checkLoadBalancerFields(&r, spec, path)
	checkTrafficPolicies(&r, spec, path)
	return r.Errors
}

const (
	hintsAnnotation  = corev1.DeprecatedAnnotationTopologyAwareHints
	modeAnnotation   = corev1.AnnotationTopologyMode
	rangesAnnotation = corev1.AnnotationLoadBalancerSourceRangesKey
)

func checkTopologyAnnotations(r *report.Report, svc *corev1.Service) {
	hints, hasHints := svc.Annotations[hintsAnnotation]
	mode, hasMode := svc.Annotations[modeAnnotation]
	if hasHints && hasMode && hints != mode {
		r.Invalid(field.NewPath("metadata", "annotations").Key(modeAnnotation), mode,
			fmt.Sprintf("must match annotations[%s] when both are specified", hintsAnnotation))
	}
}

func isHeadless(spec *corev1.ServiceSpec) bool {
	return len(spec.ClusterIPs) == 1 && spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func checkServiceType(r *report.Report, spec *corev1.ServiceSpec, path *field.Path) {
	switch spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if isHeadless(spec) {
			r.Invalid(path.Child("clusterIPs").Index(0), spec.ClusterIPs[0],
				fmt.Sprintf("may not be set to 'None' for %s services", spec.Type))
		}
	case corev1.ServiceTypeExternalName:
		const detail = "may not be set for ExternalName services"
		if len(spec.ClusterIPs) > 0 {
			r.Forbidden(path.Child("clusterIPs"), detail)
		}
		if len(spec.IPFamilies) > 0 {
			r.Forbidden(path.Child("ipFamilies"), detail)
		}
		if spec.IPFamilyPolicy != nil {
			r.Forbidden(path.Child("ipFamilyPolicy"), detail)
		}
		if name := strings.TrimSuffix(spec.ExternalName, "."); name != "" {
			r.Subdomain(path.Child("externalName"), name)
		} else {
			r.Required(path.Child("externalName"), "")
		}
	}
}

func checkServicePort(r *report.Report, port *corev1.ServicePort, named bool, names sets.Set[string], at *field.Path) {
	if port.Name != "" {
		r.Label(at.Child("name"), port.Name)
		if names.Has(port.Name) {
			r.Duplicate(at.Child("name"), port.Name)
		}
		names.Insert(port.Name)
	} else if named {
		r.Required(at.Child("name"), "")
	}
	r.Each(at.Child("port"), port.Port, validation.IsValidPortNum(int(port.Port)))
	report.OneOfRequired(r, at.Child("protocol"), port.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP,
		corev1.ProtocolUDP)
	r.Add(podspec.ValidatePort(port.TargetPort, at.Child("targetPort"))...)
	if port.AppProtocol != nil {
		r.QualifiedName(at.Child("appProtocol"), *port.AppProtocol)
	}
}

const maxAffinitySeconds = 86400

func checkAffinityConfig(r *report.Report, spec *corev1.ServiceSpec, path *field.Path) {
	config := spec.SessionAffinityConfig
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		if spec.SessionAffinity == corev1.ServiceAffinityNone && config != nil {
			r.Forbidden(path, fmt.Sprintf("must not be set when session affinity is %s", corev1.ServiceAffinityNone))
		}
		return
	}
	missing := fmt.Sprintf("when session affinity type is %s", corev1.ServiceAffinityClientIP)
	switch {
	case config == nil:
		r.Required(path, missing)
	case config.ClientIP == nil:
		r.Required(path.Child("clientIP"), missing)
	case config.ClientIP.TimeoutSeconds == nil:
		r.Required(path.Child("clientIP", "timeoutSeconds"), missing)
	case *config.ClientIP.TimeoutSeconds <= 0 || *config.ClientIP.TimeoutSeconds > maxAffinitySeconds:
		r.Invalid(path.Child("clientIP", "timeoutSeconds"), config.ClientIP.TimeoutSeconds,
			fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds))
	}
}

func checkPortNumbers(r *report.Report, spec *corev1.ServiceSpec, path *field.Path) {
	if spec.Type == corev1.ServiceTypeClusterIP {
		for i := range spec.Ports {
			if spec.Ports[i].NodePort != 0 {
				r.Forbidden(path.Index(i).Child("nodePort"), "may not be used when `type` is 'ClusterIP'")
			}
		}
	}
	nodePorts, ports := sets.New[corev1.ServicePort](), sets.New[corev1.ServicePort]()
	for i, p := range spec.Ports {
		key := corev1.ServicePort{Protocol: p.Protocol, NodePort: p.NodePort}
		if p.NodePort != 0 && nodePorts.Has(key) {
			r.Duplicate(path.Index(i).Child("nodePort"), p.NodePort)
		}
		nodePorts.Insert(key)
	}
	for i, p := range spec.Ports {
		key := corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}
		if ports.Has(key) {
			r.Duplicate(path.Index(i), key)
		}
		ports.Insert(key)
	}
}

func checkSourceRanges(r *report.Report, svc, old *corev1.Service) {
	const detail = "may only be used when `type` is 'LoadBalancer'"
	balanced := svc.Spec.Type == corev1.ServiceTypeLoadBalancer
	if ranges := svc.Spec.LoadBalancerSourceRanges; len(ranges) > 0 {
		path := field.NewPath("spec", "LoadBalancerSourceRanges")
		if !balanced {
			r.Forbidden(path, detail)
		}
		was := make([]string, len(old.Spec.LoadBalancerSourceRanges))
		for i, cidr := range old.Spec.LoadBalancerSourceRanges {
			was[i] = strings.TrimSpace(cidr)
		}
		for i, cidr := range ranges {
			r.Add(validation.IsValidCIDRForLegacyField(path.Index(i), strings.TrimSpace(cidr), true, was)...)
		}
		return
	}
	text, ok := svc.Annotations[rangesAnnotation]
	if !ok {
		return
	}
	path := field.NewPath("metadata", "annotations").Key(rangesAnnotation)
	if !balanced {
		r.Forbidden(path, detail)
	}
	if was, had := old.Annotations[rangesAnnotation]; had && was == text || strings.TrimSpace(text) == "" {
		return
	}
	for cidr := range strings.SplitSeq(text, ",") {
		r.Add(validation.IsValidCIDRForLegacyField(path, strings.TrimSpace(cidr), true, nil)...)
	}
}

func checkLoadBalancerFields(r *report.Report, spec *corev1.ServiceSpec, path *field.Path) {
	const detail = "may only be used when `type` is 'LoadBalancer'"
	balanced := spec.Type == corev1.ServiceTypeLoadBalancer
	if spec.AllocateLoadBalancerNodePorts != nil && !balanced {
		r.Forbidden(path.Child("allocateLoadBalancerNodePorts"), detail)
	}
	if spec.AllocateLoadBalancerNodePorts == nil && balanced {
		r.Required(field.NewPath("allocateLoadBalancerNodePorts"), "")
	}
	checkLoadBalancerClass(r, spec, path)
}

func checkLoadBalancerClass(r *report.Report, spec *corev1.ServiceSpec, path *field.Path) {
	class := spec.LoadBalancerClass
	if class == nil {
		return
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		r.QualifiedName(path.Child("loadBalancerClass"), *class)
	} else {
		r.Forbidden(path.Child("loadBalancerClass"), "may only be used when `type` is 'LoadBalancer'")
	}
}

func checkTrafficPolicies(r *report.Report, spec *corev1.ServiceSpec, path *field.Path) {
	external := path.Child("externalTrafficPolicy")
	if !reachableFromOutside(spec) {
		if spec.ExternalTrafficPolicy != "" {
			r.Invalid(external, spec.ExternalTrafficPolicy, "may only be set for externally-accessible services")
		}
	} else {
		report.OneOfRequired(r, external, spec.ExternalTrafficPolicy,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	}
	health := path.Child("healthCheckNodePort")
	switch port := spec.HealthCheckNodePort; {
	case !hasHealthPort(spec) && port != 0:
		r.Invalid(health, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
	case hasHealthPort(spec) && port == 0:
		r.Required(health, "")
	case hasHealthPort(spec):
		r.Each(health, port, validation.IsValidPortNum(int(port)))
	}
	internal := path.Child("internalTrafficPolicy")
	if p := spec.InternalTrafficPolicy; p != nil {
		report.OneOf(r, internal, *p, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	} else if hasNodePorts(spec) || spec.Type == corev1.ServiceTypeClusterIP {
		r.Required(internal, "")
	}
	if d := spec.TrafficDistribution; d != nil {
		report.OneOf(r, path.Child("trafficDistribution"), *d,
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
			corev1.ServiceTrafficDistributionPreferSameNode)
	}
}

func validateServiceStatus(_ context.Context, svc, old *corev1.Service) field.ErrorList {
	var r report.Report
	path := field.NewPath("status", "loadBalancer", "ingress")
	ingress := svc.Status.LoadBalancer.Ingress
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer && len(ingress) > 0 {
		r.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")
		return r.Errors
	}
	var was []string
	for _, in := range old.Status.LoadBalancer.Ingress {
		was = append(was, in.IP)
	}
	for i, in := range ingress {
		checkIngress(&r, &in, slices.DeleteFunc(was, func(s string) bool { return s == "" }), path.Index(i))
	}
	return r.Errors
}

func checkIngress(r *report.Report, in *corev1.LoadBalancerIngress, was []string, at *field.Path) {
	if in.IP != "" {
		r.Add(validation.IsValidIPForLegacyField(at.Child("ip"), in.IP, true, was)...)
	}
	switch {
	case in.IPMode == nil:
		if in.IP != "" {
			r.Required(at.Child("ipMode"), "must be specified when `ip` is set")
		}
	case in.IP == "":
		r.Forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set")
	default:
		report.OneOf(r, at.Child("ipMode"), *in.IPMode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)
	}
	if in.Hostname != "" {
		r.Subdomain(at.Child("hostname"), in.Hostname)
		if netutils.ParseIPSloppy(in.Hostname) != nil {
			r.Invalid(at.Child("hostname"), in.Hostname, "must be a DNS name, not an IP address")
		}
	}
}
