// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/util/keyutil"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/pki"
)

// TestIssue checks what certificates may be used for, their names, and that they belong to their keys.
func TestIssue(t *testing.T) {
	ca, err := pki.OpenAuthority(filepath.Join(t.TempDir(), "ca"), "kubernetes", 0, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	server, client := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	for name, c := range map[string]struct {
		leaf pki.Leaf
		want []x509.ExtKeyUsage
	}{
		"client": {pki.Leaf{Name: "u", Organizations: []string{"a", "b"}, Client: true}, []x509.ExtKeyUsage{client}},
		"server": {pki.Leaf{Name: "s", Hosts: []string{"s.example.com", "192.0.2.1", "2001:db8::1"}},
			[]x509.ExtKeyUsage{server}},
		"both": {pki.Leaf{Name: "m", Client: true, Hosts: []string{"m"}}, []x509.ExtKeyUsage{server, client}},
	} {
		certPEM, keyPEM, err := ca.Issue(c.leaf, clock.Real())
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		cert := pair.Leaf
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: c.want}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if cert.IsCA || cert.Subject.CommonName != c.leaf.Name || !slices.Equal(cert.ExtKeyUsage, c.want) ||
			!slices.Equal(cert.Subject.Organization, c.leaf.Organizations) {
			t.Errorf("%s: %v, usages %v, authority %t", name, cert.Subject, cert.ExtKeyUsage, cert.IsCA)
		}
		for _, h := range c.leaf.Hosts {
			if err := cert.VerifyHostname(h); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestAuthority checks that an authority is created once, and that only its owner may read its key.
func TestAuthority(t *testing.T) {
	base := filepath.Join(t.TempDir(), "new", "ca")
	first, err := pki.OpenAuthority(base, "one", 0, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	again, err := pki.OpenAuthority(base, "two", 0, clock.Real())
	if err != nil || !again.Cert.Equal(first.Cert) || !first.Cert.IsCA || first.Cert.Subject.CommonName != "one" {
		t.Errorf("the second start has %+v, %v", again, err)
	}
	info, err := os.Stat(base + ".key")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v, %v", info.Mode(), err)
	}
	if _, err := pki.ReadAuthority(base + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent authority: %v", err)
	}
	for _, file := range []string{".crt", ".key"} {
		good, err := os.ReadFile(base + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range [][]byte{nil, []byte("x"), bytes.Replace(good, []byte("M"), []byte("x"), 1)} {
			if err := os.WriteFile(base+file, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := pki.OpenAuthority(base, "one", 0, clock.Real()); err == nil {
				t.Errorf("%s with the content %q is accepted", file, bad)
			}
			if now, err := os.ReadFile(base + file); err != nil || !bytes.Equal(now, bad) {
				t.Errorf("%s was overwritten: %v", file, err)
			}
		}
		if err := os.WriteFile(base+file, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForeignAuthorities issues certificates with authorities that other tools made: kubeadm's keys
// are RSA keys.
func TestForeignAuthorities(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaPEM, err := keyutil.MarshalPrivateKeyToPEM(rsaKey)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(rsaKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, keyPEM := range map[string][]byte{
		"PKCS1": rsaPEM, "PKCS8": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})} {
		base := filepath.Join(t.TempDir(), "ca")
		template := &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
			SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
		cert, err := x509.CreateCertificate(rand.Reader, template, template, &rsaKey.PublicKey, rsaKey)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(base+".key", keyPEM, 0o600), os.WriteFile(base+".crt",
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600)); err != nil {
			t.Fatal(err)
		}
		ca, err := pki.OpenAuthority(base, "ca", 0, clock.Real())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := ca.IssueTo(base+"-leaf.crt", base+"-leaf.key", pki.Leaf{Name: "u"}, clock.Real()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		leaf, err := pki.ReadCertificate(base + "-leaf.crt")
		if err != nil || leaf.CheckSignatureFrom(ca.Cert) != nil {
			t.Errorf("%s: %v, %v", name, leaf, err)
		}
	}
}

// TestDue checks when a certificate must be renewed.
func TestDue(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.OpenAuthority(filepath.Join(dir, "ca"), "ca", 0, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	crt, key := filepath.Join(dir, "u.crt"), filepath.Join(dir, "u.key")
	if ca.Current(crt, key, clock.Real()) {
		t.Error("an absent certificate is current")
	}
	if err := ca.IssueTo(crt, key, pki.Leaf{Name: "u"}, clock.Real()); err != nil {
		t.Fatal(err)
	}
	if !ca.Current(crt, key, clock.Real()) {
		t.Error("a new certificate is not current")
	}
	cert, err := pki.ReadCertificate(crt)
	if err != nil {
		t.Fatal(err)
	}
	for left, want := range map[time.Duration]bool{
		pki.LeafLife: false, pki.LeafLife * 4 / 10: false, pki.LeafLife * 3 / 10: true, -time.Hour: true,
	} {
		if got := pki.Due(cert, cert.NotAfter.Add(-left)); got != want {
			t.Errorf("%v before the end: due %t, want %t", left, got, want)
		}
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if ca.Current(crt, key, clock.Real()) {
		t.Error("a certificate without its key is current")
	}
}

// TestServiceAccountKeys checks that the keys belong together, and are made once.
func TestServiceAccountKeys(t *testing.T) {
	base := filepath.Join(t.TempDir(), "sa")
	var before []byte
	for range 2 {
		if err := pki.ServiceAccountKeys(base); err != nil {
			t.Fatal(err)
		}
		private, err := keyutil.PrivateKeyFromFile(base + ".key")
		if err != nil {
			t.Fatal(err)
		}
		public, err := keyutil.PublicKeysFromFile(base + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		signer, ok := private.(crypto.Signer)
		if !ok || len(public) != 1 || !reflect.DeepEqual(public[0], signer.Public()) {
			t.Errorf("keys %T and %v", private, public)
		}
		data, err := os.ReadFile(base + ".key")
		if err != nil {
			t.Fatal(err)
		}
		if before != nil && !bytes.Equal(data, before) {
			t.Error("the key was replaced")
		}
		before = data
	}
}
