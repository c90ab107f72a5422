// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaims

import (
	"net/netip"
	"slices"
	"strings"

	"keelson.dev/keelson/pkg/outbound"
)

// Reserved are names and addresses that belong to no node. In addition, localhost, names of services,
// and loopback, link-local, multicast and metadata addresses are always reserved.
type Reserved struct {
	// Names are the names of the API server.
	Names []string
	// Ranges are the service ranges and the API server's addresses.
	Ranges []netip.Prefix
}

// Name returns why a node cannot have a name; "" if it can. For a name that is an address, the rules
// of addresses apply.
func (r Reserved) Name(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if a, err := netip.ParseAddr(name); err == nil {
		return r.Address(a)
	}
	labels := strings.Split(name, ".")
	switch {
	case slices.Contains(labels, "localhost"):
		return "it is the name of the machine itself"
	case name == "kubernetes" || name == "kubernetes.default" || slices.Contains(labels, "svc"):
		return "it is the name of a service"
	case slices.ContainsFunc(r.Names, func(s string) bool { return strings.EqualFold(strings.TrimSuffix(s, "."), name) }):
		return "it is a name of the API server"
	}
	return ""
}

// Address returns why a node cannot have an address; "" if it can.
func (r Reserved) Address(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if why := special(a); why != "" {
		return why
	}
	if slices.ContainsFunc(r.Ranges, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return "it is an address of the API server or of a service"
	}
	return ""
}

func special(a netip.Addr) string {
	if (outbound.Policy{Deny: outbound.SpecialRanges()}).Check(a) != nil {
		return "it is a loopback, link-local, multicast or metadata address"
	}
	return ""
}
