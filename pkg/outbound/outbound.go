// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outbound makes the connections that the control plane makes because a user's object
// contains the address: to webhooks, extension servers, nodes, pods and services. It prevents users
// from reaching, through the control plane, addresses that they could not reach themselves.
//
// Invariants:
//
//   - The address that is checked is the address of the connection: the check happens after name
//     resolution, between creating the socket and connecting it. So a second name resolution cannot
//     return another address.
//   - Redirects are not followed ([NoRedirects]), so an answer cannot choose another target.
//   - An IPv4 address inside an IPv6 address, also by NAT64, is treated as the IPv4 address. A zone
//     is ignored.
//
// The policy, which decides what addresses are allowed, is part of the server's configuration.
package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ErrDenied is wrapped by all errors about addresses that the policy forbids.
var ErrDenied = errors.New("address not allowed")

// ErrRedirect is wrapped by all errors about answers that are redirects.
var ErrRedirect = errors.New("redirects are not followed")

// SpecialName stands for [SpecialRanges] in a list of ranges for ParseRanges.
const SpecialName = "special"

// SpecialRanges returns ranges of addresses at which no other machine of the network offers a
// service: loopback and link-local addresses, multicast groups, invalid addresses, and the
// addresses at which clouds serve instance metadata.
func SpecialRanges() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),
		netip.MustParsePrefix("127.0.0.0/8"),
		netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("224.0.0.0/3"), // multicast, reserved and broadcast addresses
		netip.MustParsePrefix("::/127"),
		netip.MustParsePrefix("fe80::/10"),
		netip.MustParsePrefix("ff00::/8"),
		// Clouds serve instance metadata at these addresses, which are not link-local.
		netip.MustParsePrefix("100.100.100.200/32"),
		netip.MustParsePrefix("fd00:ec2::254/128"),
	}
}

// ParseRanges parses ranges in CIDR notation. [SpecialName] stands for [SpecialRanges].
func ParseRanges(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range list {
		if s = strings.TrimSpace(s); s == SpecialName {
			out = append(out, SpecialRanges()...)
			continue
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("range %q: %w", s, err)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// Policy decides to which addresses connections are allowed: to all that are not in Deny, and to
// those that are in Allow. The zero value allows all addresses.
type Policy struct {
	Deny, Allow []netip.Prefix
}

// Restricts reports whether p forbids any address.
func (p Policy) Restricts() bool { return len(p.Deny) > 0 }

// Check returns nil if the policy allows the address.
func (p Policy) Check(a netip.Addr) error {
	a = meant(a)
	in := func(r netip.Prefix) bool { return r.Contains(a) }
	if slices.ContainsFunc(p.Deny, in) && !slices.ContainsFunc(p.Allow, in) {
		return fmt.Errorf("%s: %w", a, ErrDenied)
	}
	return nil
}

// With returns a policy that also forbids the ranges in deny. It drops the ranges of Allow that
// overlap these.
func (p Policy) With(deny []netip.Prefix) Policy {
	return Policy{Deny: slices.Concat(p.Deny, deny),
		Allow: slices.DeleteFunc(slices.Clone(p.Allow), func(a netip.Prefix) bool {
			return slices.ContainsFunc(deny, a.Overlaps)
		})}
}

// translated are the prefixes of NAT64 (RFC 6052, RFC 8215). The last four bytes of an address with
// such a prefix are an IPv4 address.
var translated = [...]netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/96")}

// meant returns the address that a stands for: the IPv4 address in a, or a without its zone.
func meant(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	for _, p := range translated {
		if p.Contains(a) {
			b := a.As16()
			return netip.AddrFrom4([4]byte(b[12:]))
		}
	}
	return a
}

// Dialer connects to addresses that a policy allows.
type Dialer struct {
	policy Policy
	dialer net.Dialer
}

const (
	connectTimeout = 30 * time.Second
	keepAlive      = 30 * time.Second
)

// NewDialer returns a dialer that connects only to addresses that p allows.
func NewDialer(p Policy) *Dialer {
	d := &Dialer{policy: p}
	d.dialer = net.Dialer{Timeout: connectTimeout, KeepAlive: keepAlive}
	if p.Restricts() {
		d.dialer.ControlContext = func(_ context.Context, network, address string, _ syscall.RawConn) error {
			return d.check(network, address)
		}
	}
	return d
}

// Policy returns the dialer's policy.
func (d *Dialer) Policy() Policy { return d.policy }

// DialContext connects to an address. It resolves a name once, and checks each of its addresses
// before it sends anything to that address.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.dialer.DialContext(ctx, network, address)
}

// check is called with an address before a connection to it is opened. An error prevents the
// connection.
func (d *Dialer) check(network, address string) error {
	if !strings.HasPrefix(network, "tcp") {
		return fmt.Errorf("network %s: %w", network, ErrDenied)
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%s: %w", address, ErrDenied)
	}
	return d.policy.Check(at.Addr())
}

// NoRedirects returns a transport that returns an error if the answer is a redirect.
func NoRedirects(rt http.RoundTripper) http.RoundTripper { return noRedirects{rt} }

type noRedirects struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (n noRedirects) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 && resp.StatusCode != http.StatusNotModified {
		// The error contains nothing of the answer, because the user who receives the error may not be
		// allowed to reach the target.
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s answered with status %d: %w", r.URL.Host, resp.StatusCode, ErrRedirect)
	}
	return resp, nil
}

// WrappedRoundTripper returns the inner transport. Code that needs its TLS settings calls it.
func (n noRedirects) WrappedRoundTripper() http.RoundTripper { return n.RoundTripper }
