// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package networking

import (
	"context"
	"fmt"
	"strings"

	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
)

// ingressRow returns the row of the kind table for the resource ingresses.
func ingressRow() *resource.Row {
	parts := strategy.Parts[networkingv1.Ingress, networkingv1.IngressSpec,
		networkingv1.IngressStatus](func(o *networkingv1.Ingress) (*networkingv1.IngressSpec, *networkingv1.IngressStatus) {
		return &o.Spec, &o.Status
	})
	return resource.Of[networkingv1.IngressList](resource.Kind[*networkingv1.Ingress]{
		Group: "networking.k8s.io", Version: "v1", Resource: "ingresses", Kind: "Ingress", Namespaced: true,
		ShortNames:    []string{"ing"},
		StoragePrefix: "ingress",

		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		PrepareCreate:            parts.Create,
		PrepareUpdate:            parts.Update,
		AllowUnconditionalUpdate: true,
		ResetFields:              []string{"status"},
		Validate:                 validateIngress,
		ValidateUpdate:           validateIngressUpdate,
		Warnings:                 warnIngress,

		StoredForms: olderIngresses(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Class", Type: "string",
				Description: "The name of the IngressClass resource that should be used for additional configuration"},
			{Name: "Hosts", Type: "string",
				Description: "Hosts that incoming requests are matched against before the ingress rule"},
			{Name: "Address", Type: "string", Description: "Address is a list containing ingress points for the load-balancer"},
			{Name: "Ports", Type: "string", Description: "Ports of TLS configurations that open"},
			column.Age(),
		},
		Cells: ingressCells,

		Subresources: []resource.Sub[*networkingv1.Ingress]{
			{Subresource: strategy.View("status", "spec"), PrepareUpdate: parts.KeepSpec,
				ValidateUpdate: validateIngressStatus, Warnings: warnIngressStatus},
		},
	})
}

const (
	// classAnnotation is the key of the annotation with the class of an ingress. Clients used it
	// before the field spec.ingressClassName existed.
	classAnnotation = "kubernetes.io/ingress.class"
	maxController   = 250
	needsDNSName    = "must be a DNS name, not an IP address"
)

func validateIngress(_ context.Context, in *networkingv1.Ingress) field.ErrorList {
	r := ingress(in)
	class, annotated := in.Annotations[classAnnotation]
	if name := in.Spec.IngressClassName; annotated && name != nil && *name != class {
		r.Invalid(field.NewPath("annotations").Child(classAnnotation), class,
			"must match `ingressClassName` when both are specified")
	}
	return r.Errors
}

// validateIngressUpdate accepts an ingress whose field and annotation name different classes,
// because such ingresses can be stored. In a new ingress, the classes must be equal.
func validateIngressUpdate(_ context.Context, in, _ *networkingv1.Ingress) field.ErrorList {
	return ingress(in).Errors
}

func validateIngressStatus(_ context.Context, in, old *networkingv1.Ingress) field.ErrorList {
	var r report.Report
	path := field.NewPath("status", "loadBalancer", "ingress")
	var known []string // stored addresses, whose form need not be canonical
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

// hostPattern requires a DNS name. The first label of the name can be a wildcard.
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

// reference validates a reference to another object. kind and name become segments of a URL path.
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

func warnIngress(_ context.Context, i, old *networkingv1.Ingress) []string {
	const key = "kubernetes.io/ingress.class"
	if _, there := i.Annotations[key]; old != nil || !there || i.Spec.IngressClassName != nil {
		return nil
	}
	return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", key)}
}

func warnIngressStatus(_ context.Context, i, _ *networkingv1.Ingress) []string {
	var warnings []string
	for n, ingress := range i.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			warnings = append(warnings,
				validation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(n), ingress.IP)...)
		}
	}
	return warnings
}

func ingressCells(i *networkingv1.Ingress, env resource.CellEnv) []any {
	addresses := sets.New[string]()
	for _, in := range i.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			addresses.Insert(in.IP)
		} else if in.Hostname != "" {
			addresses.Insert(in.Hostname)
		}
	}
	ports := "80"
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	return []any{
		i.Name, column.Deref(i.Spec.IngressClassName, column.None), hosts(i.Spec.Rules),
		strings.Join(sets.List(addresses), ","), ports, env.Age(i.CreationTimestamp),
	}
}

const shownHosts = 3

// hosts returns the text of a cell: the first hosts of the rules, and the number of further hosts.
func hosts(rules []networkingv1.IngressRule) string {
	var list []string
	for _, rule := range rules {
		if len(list) == shownHosts {
			return fmt.Sprintf("%s + %d more...", strings.Join(list, ","), len(rules)-shownHosts)
		}
		if rule.Host != "" {
			list = append(list, rule.Host)
		}
	}
	if len(list) == 0 {
		return "*"
	}
	return strings.Join(list, ",")
}

// olderIngresses returns the forms in which servers stored ingresses of older API groups and
// versions. In these forms, a backend has the name and the port of the service as two fields. JSON
// and protobuf have the same fields.
func olderIngresses() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(networkingv1beta1.SchemeGroupVersion.WithKind("Ingress"), ofBeta),
		resource.NewStoredForm(extensionsv1beta1.SchemeGroupVersion.WithKind("Ingress"), ofBeta),
	}
}

func ofBeta(in *networkingv1beta1.Ingress, out *networkingv1.Ingress) {
	if b := in.Spec.Backend; b != nil {
		out.Spec.DefaultBackend = &networkingv1.IngressBackend{Resource: b.Resource,
			Service: serviceOf(b.ServiceName, b.ServicePort)}
	}
	for i := range in.Spec.Rules {
		if http := in.Spec.Rules[i].HTTP; http != nil {
			for j := range http.Paths {
				b := &http.Paths[j].Backend
				completePath(&out.Spec.Rules[i].HTTP.Paths[j], serviceOf(b.ServiceName, b.ServicePort))
			}
		}
	}
}

// completePath sets those fields of a path that an older version has in another form, or for which
// it has a default.
func completePath(p *networkingv1.HTTPIngressPath, service *networkingv1.IngressServiceBackend) {
	p.Backend.Service = service
	if p.PathType == nil {
		p.PathType = ptr.To(networkingv1.PathTypeImplementationSpecific)
	}
}

func serviceOf(name string, port intstr.IntOrString) *networkingv1.IngressServiceBackend {
	if name == "" && port == (intstr.IntOrString{}) {
		return nil
	}
	return &networkingv1.IngressServiceBackend{Name: name,
		Port: networkingv1.ServiceBackendPort{Name: port.StrVal, Number: port.IntVal}}
}
