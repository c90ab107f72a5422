// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// authority is a CA that exists only during a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	a := &authority{key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	if a.cert, err = a.sign(a.cert); err != nil {
		tb.Fatal(err)
	}
	return a
}

// sign returns a certificate that the CA has signed. Its key is that of the CA, which saves
// creating one.
func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// file writes the certificate of the CA to a file and loads the file as a CAFile.
func (a *authority) file(tb testing.TB) *CAFile {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "ca.crt")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}),
		0o600); err != nil {
		tb.Fatal(err)
	}
	out, err := LoadCAFile("ca", path)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// FuzzRequests compares authentication with a simple model. A certificate of the client CA
// authenticates its user. A certificate of the proxy CA with an allowed name authenticates the user
// in the headers. All other requests are anonymous.
func FuzzRequests(f *testing.F) {
	const proxyName = "front-proxy"
	clients, proxies, others := newAuthority(f), newAuthority(f), newAuthority(f)
	auth, err := New(Config{
		ClientCA: clients.file(f), ProxyCA: proxies.file(f), Clock: clock.Real(),
		RequestHeader: config.RequestHeader{
			AllowedNames: []string{proxyName}, UsernameHeaders: []string{"X-Remote-User"}, UIDHeaders: []string{"X-Remote-Uid"},
			GroupHeaders: []string{"X-Remote-Group"}, ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	for by := range uint8(5) {
		f.Add(by, proxyName, "system:masters", false, false, "admin", "system:masters", "scopes", "all")
		f.Add(by, "alice", "devs", by%2 == 0, by%3 == 0, "", "g", "", "")
	}
	f.Fuzz(func(t *testing.T, by uint8, cn, org string, expired, server bool, name, group, key, value string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.TLS = &tls.ConnectionState{}
		signer := []*authority{nil, clients, proxies, others}[by%4]
		if signer != nil {
			template := &x509.Certificate{
				SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: cn, Organization: []string{org}},
				NotBefore: signer.cert.NotBefore, NotAfter: signer.cert.NotAfter,
				ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			}
			if expired {
				template.NotAfter = template.NotBefore.Add(time.Minute)
			}
			if server {
				template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
			}
			cert, err := signer.sign(template)
			if err != nil || cert.Subject.CommonName != cn {
				t.Skip("not a name that certificates can have")
			}
			r.TLS.PeerCertificates = []*x509.Certificate{cert}
		}
		r.Header.Set("X-Remote-User", name)
		r.Header.Set("X-Remote-Uid", name)
		r.Header.Set("X-Remote-Group", group)
		r.Header.Set("X-Remote-Extra-"+key, value)

		valid := signer != nil && !expired && !server
		proxied := valid && signer == proxies && cn == proxyName && name != ""
		wantOK := proxied || valid && signer == clients && cn != ""
		wantName, wantGroup := cn, org
		if proxied {
			wantName, wantGroup = name, group
		}
		resp, ok, err := auth.AuthenticateRequest(r)
		if ok != wantOK {
			t.Fatalf("let in: %t, want %t (%v)", ok, wantOK, err)
		}
		if !ok {
			return
		}
		if resp.User.GetName() != wantName {
			t.Errorf("is %q, want %q", resp.User.GetName(), wantName)
		}
		for _, g := range resp.User.GetGroups() {
			if g != wantGroup && g != user.AllAuthenticated {
				t.Errorf("is in %q, want %q", g, wantGroup)
			}
		}
		if wantGroup != "" && !slices.Contains(resp.User.GetGroups(), wantGroup) {
			t.Errorf("is in %q, not in %q", resp.User.GetGroups(), wantGroup)
		}
		if !proxied && (resp.User.GetUID() == name && name != "") {
			t.Errorf("has the UID of a header that nobody vouches for: %q", name)
		}
		for k, values := range resp.User.GetExtra() {
			if proxied && !slices.Equal(values, []string{value}) || !proxied &&
				k != "authentication.kubernetes.io/credential-id" {
				t.Errorf("extra %q: %q", k, values)
			}
		}
	})
}
