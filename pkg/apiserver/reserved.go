// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/tls"
	"net/netip"
	"slices"

	"keelson.dev/keelson/pkg/nodeclaims"
)

// reserved returns the names and addresses that nodes may not claim because clients connect to this
// server or to services by them: the names in the server's certificates, its own addresses, and the
// service ranges.
func (a *assembly) reserved() nodeclaims.Reserved {
	out := nodeclaims.Reserved{Ranges: slices.Clone(a.cfg.ServiceClusterIPRanges)}
	add := func(ip netip.Addr, ok bool) {
		if ip = ip.Unmap(); ok {
			out.Ranges = append(out.Ranges, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	add(netip.AddrFromSlice(a.advertised()))
	if name := a.cfg.HTTP.ExternalHostname; name != "" {
		out.Names = append(out.Names, name)
	}
	certs := []*tls.Certificate{a.server.serving.cert.Load()}
	if named := a.server.serving.named.Load(); named != nil {
		for name, cert := range *named {
			out.Names, certs = append(out.Names, name), append(certs, cert)
		}
	}
	for _, cert := range certs {
		if cert == nil || cert.Leaf == nil {
			continue
		}
		out.Names = append(out.Names, namesOf(cert.Leaf)...)
		for _, ip := range cert.Leaf.IPAddresses {
			add(netip.AddrFromSlice(ip))
		}
	}
	return out
}
