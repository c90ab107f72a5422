// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func TestCheck(t *testing.T) {
	strict := Policy{Deny: SpecialRanges()}
	opened := Policy{Deny: SpecialRanges(), Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}}
	for name, tc := range map[string]struct {
		policy  Policy
		address string
		ok      bool
	}{
		"zero policy":                       {Policy{}, "127.0.0.1", true},
		"loopback":                          {strict, "127.0.0.1", false},
		"high loopback address":             {strict, "127.8.9.1", false},
		"this network":                      {strict, "0.0.0.0", false},
		"metadata":                          {strict, "169.254.169.254", false},
		"IPv6 metadata of AWS":              {strict, "fd00:ec2::254", false},
		"metadata of Alibaba":               {strict, "100.100.100.200", false},
		"neighbour of the metadata address": {strict, "100.100.100.201", true},
		"group":                             {strict, "224.0.0.1", false},
		"broadcast":                         {strict, "255.255.255.255", false},
		"IPv6 loopback":                     {strict, "::1", false},
		"IPv6 unspecified":                  {strict, "::", false},
		"IPv6 link-local":                   {strict, "fe80::1", false},
		"with a zone":                       {strict, "fe80::1%eth0", false},
		"mapped loopback":                   {strict, "::ffff:127.0.0.1", false},
		"mapped metadata":                   {strict, "::ffff:169.254.169.254", false},
		"translated metadata":               {strict, "64:ff9b::a9fe:a9fe", false},
		"translated elsewhere":              {strict, "64:ff9b::0a00:0001", true},
		"private":                           {strict, "10.1.2.3", true},
		"public":                            {strict, "192.0.2.7", true},
		"public IPv6":                       {strict, "2001:db8::7", true},
		"opened":                            {opened, "127.0.0.2", true},
		"outside the allowed range":         {opened, "127.0.0.1", false},
		"denied by With":                    {opened.With(SpecialRanges()), "127.0.0.2", false},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.policy.Check(netip.MustParseAddr(tc.address))
			if (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrDenied) {
				t.Errorf("%s: error %v, want ok %t", tc.address, err, tc.ok)
			}
		})
	}
}

// TestCheckNotations checks that the result for an IPv4 address is the same if it is written as
// IPv6 or NAT64 address.
func TestCheckNotations(t *testing.T) {
	p := Policy{Deny: SpecialRanges()}
	rapid.Check(t, func(t *rapid.T) {
		four := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address"))
		plain := netip.AddrFrom4(four)
		mapped := netip.AddrFrom16(plain.As16())
		nat := netip.MustParseAddr("64:ff9b::").As16()
		copy(nat[12:], four[:])
		want := p.Check(plain) == nil
		for _, a := range []netip.Addr{mapped, netip.AddrFrom16(nat)} {
			if got := p.Check(a) == nil; got != want {
				t.Fatalf("%s is allowed: %t, %s: %t", plain, want, a, got)
			}
		}
		// The policy must allow only global unicast addresses.
		if want && !plain.IsGlobalUnicast() {
			t.Fatalf("%s is allowed", plain)
		}
	})
}

func TestParseRanges(t *testing.T) {
	got, err := ParseRanges([]string{"10.1.2.3/8", " special"})
	if err != nil || len(got) != 1+len(SpecialRanges()) || got[0].String() != "10.0.0.0/8" {
		t.Errorf("got %v, error %v", got, err)
	}
	if _, err := ParseRanges([]string{"10.0.0.1"}); err == nil {
		t.Error("an address without a length is taken")
	}
}

// TestDialer checks that the dialer does not connect to forbidden addresses, neither by address nor
// by name.
func TestDialer(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	strict := NewDialer(Policy{Deny: SpecialRanges()})
	for _, host := range []string{"127.0.0.1", "localhost", "::ffff:127.0.0.1"} {
		conn, err := strict.DialContext(t.Context(), "tcp", net.JoinHostPort(host, port))
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, ErrDenied) {
			t.Errorf("%s: error %v", host, err)
		}
	}
	for name, d := range map[string]*Dialer{
		"no policy": NewDialer(Policy{}),
		"opened":    NewDialer(Policy{Deny: SpecialRanges(), Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}),
	} {
		conn, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_ = conn.Close()
	}
}

// TestNoRedirects checks that no request is sent to the target of a redirect.
func TestNoRedirects(t *testing.T) {
	asked := false
	second := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer second.Close()
	for _, code := range []int{301, 302, 303, 307, 308} {
		first := httptest.NewServer(http.RedirectHandler(second.URL, code))
		c := http.Client{Transport: NoRedirects(http.DefaultTransport)}
		resp, err := c.Get(first.URL)
		if err == nil {
			_ = resp.Body.Close()
		}
		if !errors.Is(err, ErrRedirect) || asked {
			t.Errorf("status %d: error %v, followed %t", code, err, asked)
		}
		first.Close()
	}
}
