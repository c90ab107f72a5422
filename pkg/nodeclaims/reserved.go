// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaims

import (
	"net/netip"
	"slices"
	"strings"

	"keelson.dev/keelson/pkg/outbound"
)

// Reserved has names and addresses that no node may have. In addition, no node may have the name
// localhost, a name of a service, or a loopback, link-local, multicast or metadata address.
type Reserved struct {
	// Names are the DNS names of the API server.
	Names []string
	// Ranges are the service ranges and the addresses of the API server.
	Ranges []netip.Prefix
}

// Name returns why a node cannot have the given name, or "" if it can. If name is an IP address,
// the rules for addresses apply.
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

// Address returns why a node cannot have the given address, or "" if it can.
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
