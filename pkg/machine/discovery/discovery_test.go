// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"crypto/tls"
	"encoding/pem"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/machine/discovery"
	"keelson.dev/keelson/pkg/pki"
)

func authority(t *testing.T, name string) *pki.Authority {
	t.Helper()
	a, err := pki.OpenAuthority(filepath.Join(t.TempDir(), name), name, 0, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// serve starts a TLS server with a certificate that by has signed, and with the certificates of
// others. The test fails if a client sends data after the handshake.
func serve(t *testing.T, by *pki.Authority, l pki.Leaf, issued time.Time, others ...*pki.Authority) string {
	t.Helper()
	cert, key, err := by.Issue(l, testclock.NewFakeClock(issued))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range others {
		cert = append(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.Cert.Raw})...)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if n, _ := conn.Read(make([]byte, 1)); n > 0 { // the read also does the handshake
				t.Error("the client sent data")
			}
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

func TestAuthority(t *testing.T) {
	ca, other := authority(t, "ca"), authority(t, "other")
	server := pki.Leaf{Name: "kube-apiserver", Hosts: []string{"127.0.0.1"}}
	now := time.Now()
	hash := discovery.Hash(ca.Cert)
	elsewhere := pki.Leaf{Name: "kube-apiserver", Hosts: []string{"192.0.2.1"}}
	for name, tc := range map[string]struct {
		address string
		hashes  []string
		wrong   string // a part of the error; empty if there is none
	}{
		"right":             {serve(t, ca, server, now, ca), []string{hash}, ""},
		"upper case":        {serve(t, ca, server, now, ca), []string{strings.ToUpper(hash)}, ""},
		"one of several":    {serve(t, ca, server, now, other, ca), []string{discovery.Hash(other.Cert), hash}, ""},
		"several, only its": {serve(t, ca, server, now, ca, other), []string{hash}, ""},
		"no hash":           {serve(t, ca, server, now, ca), nil, "no certificate authority"},
		"another hash":      {serve(t, ca, server, now, ca), []string{discovery.Hash(other.Cert)}, "no certificate auth"},
		"without authority": {serve(t, ca, server, now), []string{hash}, "no certificate authority"},
		"signed by another": {serve(t, other, server, now, ca), []string{hash}, "unknown authority"},
		"expired":           {serve(t, ca, server, now.AddDate(-5, 0, 0), ca), []string{hash}, "expired"},
		"of another host":   {serve(t, ca, elsewhere, now, ca), []string{hash}, "192.0.2.1"},
		"no port":           {"127.0.0.1", []string{hash}, "missing port"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := discovery.Authority(t.Context(), tc.address, tc.hashes)
			switch {
			case tc.wrong != "":
				if err == nil || !strings.Contains(err.Error(), tc.wrong) {
					t.Errorf("error %v, want one with %q", err, tc.wrong)
				}
			case err != nil:
				t.Error(err)
			case !got.Equal(ca.Cert):
				t.Errorf("authority %s", got.Subject)
			}
		})
	}
}

func TestNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if _, err := discovery.Authority(t.Context(), l.Addr().String(), nil); err == nil {
		t.Error("no error")
	}
}

func TestCheckHash(t *testing.T) {
	valid := "sha256:" + strings.Repeat("0a", 32)
	for text, ok := range map[string]bool{
		valid: true, strings.ToUpper(valid): true, "": false, "sha256:": false, valid + "0a": false, valid[7:]: false,
		"sha1:" + strings.Repeat("0a", 32): false, "sha256:" + strings.Repeat("zz", 32): false,
	} {
		if err := discovery.CheckHash(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
