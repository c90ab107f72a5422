// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/tls"
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"keelson.dev/keelson/pkg/outbound"
)

// Transport says how connections are made: those of clients, and the server's
// own to webhooks, aggregated servers, nodes, pods and services.
type Transport struct {
	MinTLSVersion string   // empty: TLS 1.2
	CipherSuites  []string // empty: Go's default
	Curves        []int32  // key exchanges, by Go's numbers; empty: Go's default

	// Deny and Allow are ranges, as outbound.ParseRanges reads them: what the
	// server does not connect to for a user's object, and what of it it does.
	Deny, Allow []string
	// NodeRanges are the ranges that node addresses must be in, in the format of
	// outbound.ParseRanges; empty allows any address.
	NodeRanges []string
}

func (t *Transport) add(fs *pflag.FlagSet) {
	fs.StringVar(&t.MinTLSVersion, "tls-min-version", "", "lowest version of TLS to speak: VersionTLS12, VersionTLS13")
	fs.StringSliceVar(&t.CipherSuites, "tls-cipher-suites", nil, "cipher suites of TLS 1.2; empty: Go's default")
	fs.Int32SliceVar(&t.Curves, "tls-curve-preferences", nil, "key exchanges, by the numbers of Go's tls.CurveID, in no order; empty: Go's default")
	fs.StringSliceVar(&t.Deny, "outbound-deny", nil,
		"ranges (CIDR) that webhooks, aggregated servers and node addresses may not be in; "+outbound.SpecialName+": loopback, link-local, metadata and the like")
	fs.StringSliceVar(&t.Allow, "outbound-allow", nil, "ranges that --outbound-deny does not forbid")
	fs.StringSliceVar(&t.NodeRanges, "node-address-ranges", nil,
		"CIDR ranges that the addresses reported by nodes must be in; checked by the admission plugin NodeOwnership. Empty allows any address that is not reserved")
}

// TLS sets the version, the suites and the key exchanges of c.
func (t *Transport) TLS(c *tls.Config) error {
	suites, err := cliflag.TLSCipherSuites(t.CipherSuites)
	if err != nil {
		return err
	}
	curves, err := cliflag.TLSCurvePreferences(t.Curves)
	if err != nil {
		return err
	}
	c.CipherSuites, c.CurvePreferences, c.MinVersion = suites, curves, tls.VersionTLS12
	if t.MinTLSVersion != "" {
		c.MinVersion, err = cliflag.TLSVersion(t.MinTLSVersion)
	}
	return err
}

// Outbound is the policy for the server's own connections.
func (t *Transport) Outbound() (outbound.Policy, error) {
	deny, err := outbound.ParseRanges(t.Deny)
	if err != nil {
		return outbound.Policy{}, fmt.Errorf("--outbound-deny: %w", err)
	}
	allow, err := outbound.ParseRanges(t.Allow)
	if err != nil {
		return outbound.Policy{}, fmt.Errorf("--outbound-allow: %w", err)
	}
	return outbound.Policy{Deny: deny, Allow: allow}, nil
}

// NodeAddresses returns the ranges that node addresses must be in.
func (t *Transport) NodeAddresses() ([]netip.Prefix, error) {
	list, err := outbound.ParseRanges(t.NodeRanges)
	if err != nil {
		return nil, fmt.Errorf("--node-address-ranges: %w", err)
	}
	return list, nil
}

func (t *Transport) validateTLS() error { return t.TLS(&tls.Config{}) }
