// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson.dev/apiserver/naming"
	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/unset"
)

// endpointsRow returns the row of the kind table for the resource endpoints.
func endpointsRow() *resource.Row {
	return resource.Of[corev1.EndpointsList](resource.Kind[*corev1.Endpoints]{
		Group: "", Version: "v1", Resource: "endpoints", Kind: "Endpoints", Namespaced: true,
		Versions: []resource.Version{
			{Name: "v1", Deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"}},
		ShortNames:    []string{"ep"},
		StoragePrefix: "services/endpoints",

		Default:                  defaultEndpoints,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		Validate:                 validateEndpoints,
		ValidateUpdate:           validateEndpointsUpdate,
		Warnings:                 warnEndpoints,
		AllowCreateOnUpdate:      true,
		AllowUnconditionalUpdate: true,

		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "Endpoints", Type: "string", Description: corev1.Endpoints{}.SwaggerDoc()["subsets"]},
			column.Age(),
		},
		Cells: endpointsCells,
	})
}

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			unset.Fill(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

func validateEndpoints(_ context.Context, e *corev1.Endpoints) field.ErrorList {
	var r report.Report
	for i := range e.Subsets {
		s, at := &e.Subsets[i], field.NewPath("subsets").Index(i)
		if len(s.Addresses)+len(s.NotReadyAddresses) == 0 {
			r.Required(at, "must specify `addresses` or `notReadyAddresses`")
		}
		for j := range s.Addresses {
			checkEndpointAddress(&r, &s.Addresses[j], at.Child("addresses").Index(j))
		}
		for j := range s.NotReadyAddresses {
			checkEndpointAddress(&r, &s.NotReadyAddresses[j], at.Child("notReadyAddresses").Index(j))
		}
		for j := range s.Ports {
			checkEndpointPort(&r, &s.Ports[j], len(s.Ports) > 1, at.Child("ports").Index(j))
		}
	}
	return r.Errors
}

func checkEndpointAddress(r *report.Report, a *corev1.EndpointAddress, at *field.Path) {
	r.Add(validation.IsValidIPForLegacyField(at.Child("ip"), a.IP, true, nil)...)
	if a.Hostname != "" {
		r.Label(at.Child("hostname"), a.Hostname)
	}
	if a.NodeName != nil {
		r.Each(at.Child("nodeName"), *a.NodeName, naming.NameIsDNSSubdomain(*a.NodeName, false))
	}
	r.EndpointIP(at.Child("ip"), a.IP)
}

func checkEndpointPort(r *report.Report, p *corev1.EndpointPort, named bool, at *field.Path) {
	if p.Name != "" {
		r.Label(at.Child("name"), p.Name)
	} else if named {
		r.Required(at.Child("name"), "")
	}
	r.Each(at.Child("port"), p.Port, validation.IsValidPortNum(int(p.Port)))
	report.OneOfRequired(r, at.Child("protocol"), p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
	if p.AppProtocol != nil {
		r.QualifiedName(at.Child("appProtocol"), *p.AppProtocol)
	}
}

// validateEndpointsUpdate validates subsets only if they have changed.
func validateEndpointsUpdate(ctx context.Context, e, old *corev1.Endpoints) field.ErrorList {
	if equality.Semantic.DeepEqual(e.Subsets, old.Subsets) {
		return nil
	}
	return validateEndpoints(ctx, e)
}

func warnEndpoints(_ context.Context, e, _ *corev1.Endpoints) []string {
	if e.Labels["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
		return nil // the endpoints controller writes canonical addresses
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

const shownEndpoints = 3

func endpointsCells(e *corev1.Endpoints, env resource.CellEnv) []any {
	var list []string
	for i := range e.Subsets {
		subset := &e.Subsets[i]
		for _, address := range subset.Addresses {
			if len(subset.Ports) == 0 {
				list = append(list, address.IP)
			}
		}
		for _, port := range subset.Ports {
			for _, address := range subset.Addresses {
				list = append(list, net.JoinHostPort(address.IP, strconv.Itoa(int(port.Port))))
			}
		}
	}
	text := column.Few(list, shownEndpoints)
	if len(list) == 0 && len(e.Subsets) > 0 {
		text = ""
	}
	return []any{e.Name, text, env.Age(e.CreationTimestamp)}
}
