// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"context"
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/report"
)

const (
	// classAnnotation named an ingress's class before the field did.
	classAnnotation = "kubernetes.io/ingress.class"
	maxController   = 250
	needsDNSName    = "must be a DNS name, not an IP address"
)

func validateIngress(_ context.Context, in *networkingv1.Ingress) field.ErrorList {
	r := ingress(in)
	class, annotated := in.Annotations[classAnnotation]
	if name := in.Spec.IngressClassName; annotated && name != nil && *name != class {
		r.Invalid(field.NewPath("annotations").Child(classAnnotation), class, "must match `ingressClassName` when both are specified")
	}
	return r.Errors
}

// An update may keep a class that differs from the annotation: old objects have both.
func validateIngressUpdate(_ context.Context, in, _ *networkingv1.Ingress) field.ErrorList {
	return ingress(in).Errors
}

func validateIngressStatus(_ context.Context, in, old *networkingv1.Ingress) field.ErrorList {
	var r report.Report
	path := field.NewPath("status", "loadBalancer", "ingress")
	var known []string // may be spelled as they were
	for _, at := range old.Status.LoadBalancer.Ingress {
		known = append(known, at.IP)
	}
	for i, at := range in.Status.LoadBalancer.Ingress {
		if at.IP != "" {
			r.Add(validation.IsValidIPForLegacyField(path.Index(i).Child("ip"), at.IP, true, known)...)
		}
		if at.Hostname == "" {
			continue
		}
		r.Subdomain(path.Index(i).Child("hostname"), at.Hostname)
		if netutils.ParseIPSloppy(at.Hostname) != nil {
			r.Invalid(path.Index(i).Child("hostname"), at.Hostname, needsDNSName)
		}
	}
	return r.Errors
}

func ingress(in *networkingv1.Ingress) *report.Report {
	r, spec, path := &report.Report{}, &in.Spec, field.NewPath("spec")
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		r.Invalid(path, spec.Rules, "either `defaultBackend` or `rules` must be specified")
	}
	if spec.DefaultBackend != nil {
		ingressBackend(r, path.Child("defaultBackend"), spec.DefaultBackend)
	}
	for i := range spec.Rules {
		ingressRule(r, path.Child("rules").Index(i), &spec.Rules[i])
	}
	for i, tls := range spec.TLS {
		at := path.Child("tls").Index(i)
		for j, host := range tls.Hosts {
			hostPattern(r, at.Child("hosts").Index(j), host)
		}
		if tls.SecretName != "" {
			r.Subdomain(at.Child("secretName"), tls.SecretName)
		}
	}
	if spec.IngressClassName != nil {
		r.Subdomain(path.Child("ingressClassName"), *spec.IngressClassName)
	}
	return r
}

func ingressRule(r *report.Report, path *field.Path, rule *networkingv1.IngressRule) {
	if rule.Host != "" {
		if netutils.ParseIPSloppy(rule.Host) != nil {
			r.Invalid(path.Child("host"), rule.Host, needsDNSName)
		}
		hostPattern(r, path.Child("host"), rule.Host)
	}
	if rule.HTTP == nil {
		return
	}
	paths := path.Child("http", "paths")
	if len(rule.HTTP.Paths) == 0 {
		r.Required(paths, "")
	}
	for i := range rule.HTTP.Paths {
		ingressPath(r, paths.Index(i), &rule.HTTP.Paths[i])
	}
}

// hostPattern takes a host or a wildcard for one label of it.
func hostPattern(r *report.Report, path *field.Path, host string) {
	if strings.Contains(host, "*") {
		r.Each(path, host, validation.IsWildcardDNS1123Subdomain(host))
		return
	}
	r.Subdomain(path, host)
}

func ingressPath(r *report.Report, path *field.Path, p *networkingv1.HTTPIngressPath) {
	if p.PathType == nil {
		r.Required(path.Child("pathType"), "pathType must be specified")
		return
	}
	at, absolute := path.Child("path"), strings.HasPrefix(p.Path, "/")
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		if !absolute {
			r.Invalid(at, p.Path, "must be an absolute path")
		}
		for _, no := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(p.Path, no) {
				r.Invalid(at, p.Path, fmt.Sprintf("must not contain '%s'", no))
			}
		}
		for _, no := range []string{"/..", "/."} {
			if strings.HasSuffix(p.Path, no) {
				r.Invalid(at, p.Path, fmt.Sprintf("cannot end with '%s'", no))
			}
		}
	case networkingv1.PathTypeImplementationSpecific:
		if p.Path != "" && !absolute {
			r.Invalid(at, p.Path, "must be an absolute path")
		}
	default:
		report.OneOf(r, path.Child("pathType"), *p.PathType,
			networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)
	}
	ingressBackend(r, path.Child("backend"), &p.Backend)
}

func ingressBackend(r *report.Report, path *field.Path, b *networkingv1.IngressBackend) {
	switch {
	case b.Resource != nil && b.Service != nil:
		r.Invalid(path, "", "cannot set both resource and service backends")
	case b.Resource != nil:
		reference(r, path.Child("resource"), b.Resource.APIGroup, b.Resource.Kind, b.Resource.Name)
	case b.Service != nil:
		serviceBackend(r, path, b.Service)
	default:
		r.Invalid(path, "", "resource or service backend is required")
	}
}

func serviceBackend(r *report.Report, path *field.Path, s *networkingv1.IngressServiceBackend) {
	at, port := path.Child("service"), s.Port
	if s.Name == "" {
		r.Required(at.Child("name"), "")
	} else {
		r.Label(at.Child("name"), s.Name)
	}
	switch {
	case port.Name != "" && port.Number != 0:
		r.Invalid(path, "", "cannot set both port name & port number")
	case port.Name != "":
		r.Each(at.Child("port", "name"), port.Name, validation.IsValidPortName(port.Name))
	case port.Number != 0:
		r.Each(at.Child("port", "number"), port.Number, validation.IsValidPortNum(int(port.Number)))
	default:
		r.Required(path, "port name or number is required")
	}
}

// reference judges what names another object; its parts become parts of a URL.
func reference(r *report.Report, path *field.Path, group *string, kind, name string) {
	if group != nil {
		r.Subdomain(path.Child("apiGroup"), *group)
	}
	segment(r, path.Child("kind"), kind)
	segment(r, path.Child("name"), name)
}

func segment(r *report.Report, path *field.Path, value string) {
	if value == "" {
		r.Required(path, "")
		return
	}
	r.Each(path, value, content.IsPathSegmentName(value))
}

func validateIngressClass(_ context.Context, c *networkingv1.IngressClass) field.ErrorList {
	var r report.Report
	path := field.NewPath("spec")
	if len(c.Spec.Controller) > maxController {
		r.TooLong(path.Child("controller"), maxController)
	}
	r.Add(validation.IsDomainPrefixedPath(path.Child("controller"), c.Spec.Controller)...)
	if p := c.Spec.Parameters; p != nil {
		classParameters(&r, path.Child("parameters"), p)
	}
	return r.Errors
}

func validateIngressClassUpdate(ctx context.Context, c, old *networkingv1.IngressClass) field.ErrorList {
	var r report.Report
	r.Immutable(field.NewPath("spec", "controller"), c.Spec.Controller, old.Spec.Controller)
	r.Add(resource.MetaHere())
	r.Add(validateIngressClass(ctx, c)...)
	return r.Errors
}

func classParameters(r *report.Report, path *field.Path, p *networkingv1.IngressClassParametersReference) {
	reference(r, path, p.APIGroup, p.Kind, p.Name)
	if p.Scope == nil {
		r.Required(path.Child("scope"), "")
		return
	}
	at := path.Child("namespace")
	switch *p.Scope {
	case networkingv1.IngressClassParametersReferenceScopeNamespace:
		if p.Namespace == nil {
			r.Required(at, "`parameters.scope` is set to 'Namespace'")
		} else {
			r.Label(at, *p.Namespace)
		}
	case networkingv1.IngressClassParametersReferenceScopeCluster:
		if p.Namespace != nil {
			r.Forbidden(at, "`parameters.scope` is set to 'Cluster'")
		}
	default:
		report.OneOf(r, path.Child("scope"), *p.Scope,
			networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace)
	}
}
