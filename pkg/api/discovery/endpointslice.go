// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package discovery declares endpoint slices.
//
// Each kind has a row in the API server's kind table (type resource.Row), which describes the kind.
// The functions to which the row refers (defaults, preparation, validation and table cells) are
// next to it. All of them are pure: they do no I/O and keep no state.
package discovery

import (
	"context"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"keelson.dev/apiserver/resource"
	"keelson.dev/keelson/pkg/api/column"
	"keelson.dev/keelson/pkg/api/report"
	"keelson.dev/keelson/pkg/api/strategy"
	"keelson.dev/keelson/pkg/api/unset"
)

// Rows returns the group's rows of the kind table, in the order in which discovery lists them.
func Rows() []*resource.Row {
	return []*resource.Row{
		endpointSliceRow(),
	}
}

// endpointSliceRow returns the row of the kind table for the resource endpointslices.
func endpointSliceRow() *resource.Row {
	return resource.Of[discoveryv1.EndpointSliceList](resource.Kind[*discoveryv1.EndpointSlice]{
		Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Kind: "EndpointSlice", Namespaced: true,

		Default:                  defaultEndpointSlice,
		MetaOnUpdate:             resource.CheckNameAndFinalizers,
		PrepareCreate:            prepareEndpointSliceCreate,
		Validate:                 validateEndpointSlice,
		PrepareUpdate:            prepareEndpointSliceUpdate,
		ValidateUpdate:           validateEndpointSliceUpdate,
		Warnings:                 warnEndpointSlice,
		AllowUnconditionalUpdate: true,

		StoredForms: olderEndpointSlices(),
		Columns: []metav1.TableColumnDefinition{
			column.Name(),
			{Name: "AddressType", Type: "string", Description: discoveryv1.EndpointSlice{}.SwaggerDoc()["addressType"]},
			{Name: "Ports", Type: "string", Description: discoveryv1.EndpointSlice{}.SwaggerDoc()["ports"]},
			{Name: "Endpoints", Type: "string", Description: discoveryv1.EndpointSlice{}.SwaggerDoc()["endpoints"]},
			column.Age(),
		},
		Cells: endpointSliceCells,
	})
}

func defaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		unset.Point(&s.Ports[i].Name, "")
		unset.Point(&s.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func prepareEndpointSliceCreate(_ context.Context, s *discoveryv1.EndpointSlice) {
	s.Generation = 1
	dropTopology(s)
}

// prepareEndpointSliceUpdate increments the generation if the labels or any field outside of the
// metadata changes.
func prepareEndpointSliceUpdate(_ context.Context, s, old *discoveryv1.EndpointSlice) {
	content := func(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		c := *s
		c.ObjectMeta = metav1.ObjectMeta{Labels: s.Labels}
		return &c
	}
	strategy.Count(s, old, equality.Semantic.DeepEqual(content(s), content(old)))
	if !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		dropTopology(s)
	}
}

// dropTopology clears deprecatedTopology, a field of v1beta1. In v1, clients can read but not set
// it.
func dropTopology(s *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		s.Endpoints[i].DeprecatedTopology = nil
	}
}

const (
	maxAddresses = 100
	maxPorts     = 20000
	maxEndpoints = 1000
	maxHints     = 8
)

func validateEndpointSlice(_ context.Context, s *discoveryv1.EndpointSlice) field.ErrorList {
	return validateSlice(s, nil)
}

func validateEndpointSliceUpdate(_ context.Context, s, old *discoveryv1.EndpointSlice) field.ErrorList {
	r := report.Report{Errors: validateSlice(s, old)}
	r.Immutable(field.NewPath("addressType"), s.AddressType, old.AddressType)
	return r.Errors
}

// validateSlice validates an endpoint slice. old is nil if the slice is new. On update, endpoints
// that have not changed are not checked.
func validateSlice(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	var r report.Report
	report.OneOfRequired(&r, field.NewPath("addressType"), s.AddressType,
		discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
	checkPorts(&r, s.Ports, field.NewPath("ports"))
	if old == nil || !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		checkEndpoints(&r, s, field.NewPath("endpoints"))
	}
	return r.Errors
}

func checkPorts(r *report.Report, ports []discoveryv1.EndpointPort, path *field.Path) {
	if len(ports) > maxPorts {
		r.TooMany(path, len(ports), maxPorts)
		return
	}
	names := sets.New[string]()
	for i, p := range ports {
		at, name := path.Index(i), ""
		if p.Name != nil {
			name = *p.Name
		}
		if name != "" {
			r.Label(at.Child("name"), name)
		}
		if names.Has(name) {
			r.Duplicate(at.Child("name"), name)
		}
		names.Insert(name)
		if p.Protocol == nil {
			r.Required(at.Child("protocol"), "")
		} else {
			report.OneOf(r, at.Child("protocol"), *p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
		}
		if p.AppProtocol != nil {
			r.QualifiedName(at.Child("appProtocol"), *p.AppProtocol)
		}
	}
}

func checkEndpoints(r *report.Report, s *discoveryv1.EndpointSlice, path *field.Path) {
	if len(s.Endpoints) > maxEndpoints {
		r.TooMany(path, len(s.Endpoints), maxEndpoints)
		return
	}
	for i := range s.Endpoints {
		e, at := &s.Endpoints[i], path.Index(i)
		addresses := at.Child("addresses")
		if len(e.Addresses) == 0 {
			r.Required(addresses, "must contain at least 1 address")
		} else if len(e.Addresses) > maxAddresses {
			r.TooMany(addresses, len(e.Addresses), maxAddresses)
		}
		for j, address := range e.Addresses {
			checkAddress(r, s.AddressType, address, addresses, j)
		}
		if e.NodeName != nil {
			r.Each(at.Child("nodeName"), *e.NodeName, apivalidation.NameIsDNSSubdomain(*e.NodeName, false))
		}
		if e.Hostname != nil {
			r.Label(at.Child("hostname"), *e.Hostname)
		}
		if e.Hints != nil {
			checkHints(r, e.Hints, at.Child("hints"))
		}
	}
}

func checkAddress(r *report.Report, kind discoveryv1.AddressType, address string, path *field.Path, i int) {
	at := path.Index(i)
	var errs field.ErrorList
	switch kind {
	case discoveryv1.AddressTypeFQDN:
		r.Add(validation.IsFullyQualifiedDomainName(at, address)...)
		return
	case discoveryv1.AddressTypeIPv4:
		errs = validation.IsValidIPForLegacyField(at, address, true, nil)
	case discoveryv1.AddressTypeIPv6:
		errs = validation.IsValidIP(at, address)
	default:
		return
	}
	if len(errs) > 0 {
		r.Add(errs...)
		return
	}
	if kind == discoveryv1.AddressTypeIPv4 && !netutils.IsIPv4String(address) {
		r.Invalid(path, address, "must be an IPv4 address")
	}
	if kind == discoveryv1.AddressTypeIPv6 && !netutils.IsIPv6String(address) {
		r.Invalid(path, address, "must be an IPv6 address")
	}
	r.EndpointIP(at, address)
}

func checkHints(r *report.Report, hints *discoveryv1.EndpointHints, path *field.Path) {
	zones := make([]string, len(hints.ForZones))
	for i, z := range hints.ForZones {
		zones[i] = z.Name
	}
	nodes := make([]string, len(hints.ForNodes))
	for i, n := range hints.ForNodes {
		nodes[i] = n.Name
	}
	if !checkHintNames(r, zones, validation.IsValidLabelValue, path.Child("forZones")) {
		return
	}
	nodeName := func(name string) []string { return apivalidation.NameIsDNSSubdomain(name, false) }
	checkHintNames(r, nodes, nodeName, path.Child("forNodes"))
}

func checkHintNames(r *report.Report, names []string, check func(string) []string, path *field.Path) bool {
	if len(names) > maxHints {
		r.TooMany(path, len(names), maxHints)
		return false
	}
	seen := sets.New[string]()
	for i, name := range names {
		at := path.Index(i).Child("name")
		if seen.Has(name) {
			r.Duplicate(at, name)
		}
		seen.Insert(name)
		r.Each(at, name, check(name))
	}
	return true
}

func warnEndpointSlice(_ context.Context, s, old *discoveryv1.EndpointSlice) []string {
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		if old != nil {
			return nil
		}
		return []string{field.NewPath("spec", "addressType").String() + ": FQDN endpoints are deprecated"}
	}
	switch s.Labels[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		return nil // these controllers write addresses in canonical form
	}
	var warnings []string
	for i := range s.Endpoints {
		for j, address := range s.Endpoints[i].Addresses {
			warnings = append(warnings,
				validation.GetWarningsForIP(field.NewPath("endpoints").Index(i).Child("addresses").Index(j), address)...)
		}
	}
	return warnings
}

const shown = 3

func endpointSliceCells(s *discoveryv1.EndpointSlice, env resource.CellEnv) []any {
	ports := make([]string, len(s.Ports))
	for i, p := range s.Ports {
		ports[i] = "*"
		if p.Port != nil {
			ports[i] = strconv.Itoa(int(*p.Port))
		} else if p.Name != nil {
			ports[i] = *p.Name
		}
	}
	var addresses []string
	for i := range s.Endpoints {
		addresses = append(addresses, s.Endpoints[i].Addresses...)
	}
	return []any{
		s.Name, string(s.AddressType), column.FewOrUnset(ports, shown), column.FewOrUnset(addresses, shown),
		env.Age(s.CreationTimestamp),
	}
}

// olderEndpointSlices returns the form in which servers stored slices of v1beta1. In this form, a
// map of labels says where an endpoint is.
func olderEndpointSlices() []resource.StoredForm {
	return []resource.StoredForm{
		resource.NewStoredForm(discoveryv1beta1.SchemeGroupVersion.WithKind("EndpointSlice"),
			func(in *discoveryv1beta1.EndpointSlice, out *discoveryv1.EndpointSlice) {
				for i := range in.Endpoints {
					place(in.Endpoints[i].Topology, &out.Endpoints[i])
				}
			}),
	}
}

func place(topology map[string]string, e *discoveryv1.Endpoint) {
	rest := maps.Clone(topology)
	if zone, ok := rest[corev1.LabelTopologyZone]; ok {
		e.Zone = &zone
		delete(rest, corev1.LabelTopologyZone)
	}
	if host, ok := rest[corev1.LabelHostname]; ok && e.NodeName != nil && host == *e.NodeName {
		delete(rest, corev1.LabelHostname)
	}
	e.DeprecatedTopology = nil
	if len(rest) > 0 {
		e.DeprecatedTopology = rest
	}
}
