// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outbound makes the connections that a control plane makes because a
// user's object says so: to webhooks, aggregated servers, nodes, pods and
// services. What it is for is that nobody can use the control plane's place in
// the network to reach what they could not reach themselves.
//
// Invariants:
//
//   - The address that is checked is the one that is connected to: the check is
//     made after names have been resolved, between making a socket and
//     connecting it. There is no second look-up in between that could answer
//     otherwise.
//   - No redirect is followed ([NoRedirects]): an answer cannot choose the next
//     target.
//   - An address in another notation (IPv4 in IPv6, with a zone, translated by
//     NAT64) is the address that it stands for.
//
// It does not decide what a policy is: the server's configuration does.
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

// ErrDenied is in the chain of every error about a target that the policy forbids.
var ErrDenied = errors.New("address not allowed")

// ErrRedirect is in the chain of the error for an answer that is a redirect.
var ErrRedirect = errors.New("redirects are not followed")

// SpecialName stands for [Special] in a list of ranges.
const SpecialName = "special"

// SpecialRanges are the ranges that no other machine's service is in: the machine
// itself, its links (which is where clouds serve instance metadata), groups, and
// addresses that are none.
func SpecialRanges() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),
		netip.MustParsePrefix("127.0.0.0/8"),
		netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("224.0.0.0/3"), // groups, reserved, broadcast
		netip.MustParsePrefix("::/127"),
		netip.MustParsePrefix("fe80::/10"),
		netip.MustParsePrefix("ff00::/8"),
		// Metadata services that are not link-local.
		netip.MustParsePrefix("100.100.100.200/32"),
		netip.MustParsePrefix("fd00:ec2::254/128"),
	}
}

// ParseRanges reads ranges in CIDR notation; [SpecialName] stands for all of [Special].
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

// Policy says which addresses may be connected to: those in Allow, and of the
// others those that are not in Deny. The zero value allows all.
type Policy struct {
	Deny, Allow []netip.Prefix
}

// Restricts tells whether there is any address that p forbids.
func (p Policy) Restricts() bool { return len(p.Deny) > 0 }

// Check returns nil for an address that may be connected to.
func (p Policy) Check(a netip.Addr) error {
	a = meant(a)
	in := func(r netip.Prefix) bool { return r.Contains(a) }
	if slices.ContainsFunc(p.Deny, in) && !slices.ContainsFunc(p.Allow, in) {
		return fmt.Errorf("%s: %w", a, ErrDenied)
	}
	return nil
}

// With forbids further ranges, which Allow does not open.
func (p Policy) With(deny []netip.Prefix) Policy {
	return Policy{Deny: slices.Concat(p.Deny, deny), Allow: slices.DeleteFunc(slices.Clone(p.Allow), func(a netip.Prefix) bool {
		return slices.ContainsFunc(deny, a.Overlaps)
	})}
}

// translated are the prefixes of NAT64 (RFC 6052, RFC 8215) whose last four
// bytes are an IPv4 address.
var translated = [...]netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/96")}

// meant is the address that a stands for.
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

// Dialer connects to what a policy allows.
type Dialer struct {
	policy Policy
	dialer net.Dialer
}

const (
	connectTimeout = 30 * time.Second
	keepAlive      = 30 * time.Second
)

// NewDialer returns a dialer that obeys p.
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

// Policy is what the dialer obeys.
func (d *Dialer) Policy() Policy { return d.policy }

// DialContext connects. A name is resolved once, and each of its addresses is
// checked before anything is sent to it.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.dialer.DialContext(ctx, network, address)
}

// check is asked with an address that is about to be connected to.
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

// NoRedirects makes an error of every answer that asks to go elsewhere.
func NoRedirects(rt http.RoundTripper) http.RoundTripper { return noRedirects{rt} }

type noRedirects struct{ http.RoundTripper }

// RoundTrip carries one request.
func (n noRedirects) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 && resp.StatusCode != http.StatusNotModified {
		// What the target sent is not told: it would tell the asker of a place
		// that only the server can reach.
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s answered with status %d: %w", r.URL.Host, resp.StatusCode, ErrRedirect)
	}
	return resp, nil
}

// WrappedRoundTripper is the transport inside, for who looks for its settings.
func (n noRedirects) WrappedRoundTripper() http.RoundTripper { return n.RoundTripper }
