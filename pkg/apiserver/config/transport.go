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

// Transport configures TLS of the listener, and the addresses that the server connects to for
// webhooks, extension servers, nodes, pods and services.
type Transport struct {
	MinTLSVersion string   // if empty, TLS 1.2
	CipherSuites  []string // names of cipher suites; if empty, Go's default suites
	Curves        []int32  // key exchanges, as numbers of Go's tls.CurveID; if empty, Go's default

	// Deny and Allow are address ranges in the format of outbound.ParseRanges. If a user's object,
	// such as a webhook or a node, contains an address in Deny, the server does not connect to it,
	// unless the address is in Allow.
	Deny, Allow []string
	// NodeRanges are the ranges in which addresses of nodes must be, in the format of
	// outbound.ParseRanges. If it is empty, any address is allowed.
	NodeRanges []string
}

func (t *Transport) add(fs *pflag.FlagSet) {
	fs.StringVar(&t.MinTLSVersion, "tls-min-version", "",
		"lowest TLS version that clients may use: VersionTLS12 or VersionTLS13; if empty, VersionTLS12")
	fs.StringSliceVar(&t.CipherSuites, "tls-cipher-suites", nil,
		"cipher suites that clients may use with TLS 1.2, separated by commas; if empty, Go's default")
	fs.Int32SliceVar(&t.Curves, "tls-curve-preferences", nil,
		"key exchange mechanisms that clients may use, as numbers of Go's type tls.CurveID, separated by "+
			"commas; the order has no meaning; if empty, Go's default")
	fs.StringSliceVar(&t.Deny, "outbound-deny", nil,
		"address ranges (CIDR) to which the server does not connect for webhooks, extension servers and nodes, "+
			"separated by commas; "+outbound.SpecialName+" means loopback, link-local, metadata and similar "+
			"addresses; if empty, all addresses are allowed")
	fs.StringSliceVar(&t.Allow, "outbound-allow", nil,
		"address ranges (CIDR) to which the server may connect although --outbound-deny contains them, "+
			"separated by commas")
	fs.StringSliceVar(&t.NodeRanges, "node-address-ranges", nil,
		"address ranges (CIDR) in which all addresses that nodes report must be, separated by commas; the "+
			"admission plugin NodeOwnership checks this; if empty, nodes may report any address that is not "+
			"reserved")
}

// TLS sets the minimum version, the cipher suites and the key exchanges of c.
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

// Outbound returns the policy that Deny and Allow define for connections of the server.
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

// NodeAddresses returns the parsed NodeRanges.
func (t *Transport) NodeAddresses() ([]netip.Prefix, error) {
	list, err := outbound.ParseRanges(t.NodeRanges)
	if err != nil {
		return nil, fmt.Errorf("--node-address-ranges: %w", err)
	}
	return list, nil
}

func (t *Transport) validateTLS() error { return t.TLS(&tls.Config{}) }
