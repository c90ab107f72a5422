// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"keelson.dev/keelson/pkg/pki"
)

const generations = 10

// succession makes ten authorities. Each one succeeds the one before it after the given time.
func succession(t *testing.T, life, between time.Duration, clk *testclock.FakeClock) []*pki.Authority {
	t.Helper()
	first, err := pki.OpenAuthority(filepath.Join(t.TempDir(), "ca"), "kubernetes", life, clk)
	if err != nil {
		t.Fatal(err)
	}
	out := []*pki.Authority{first}
	for len(out) < generations {
		clk.Step(between)
		next, err := out[len(out)-1].Succeed(life, clk)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, next)
	}
	return out
}

// accepted reports whether a peer that trusts only one authority accepts what another peer presents: a
// certificate with those that follow it.
func accepted(t *testing.T, presented []byte, trusted *pki.Authority, now time.Time) bool {
	t.Helper()
	file := filepath.Join(t.TempDir(), "crt")
	if err := os.WriteFile(file, presented, 0o600); err != nil {
		t.Fatal(err)
	}
	chain, err := pki.ReadCertificates(file)
	if err != nil {
		t.Fatal(err)
	}
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(trusted.Cert)
	for _, c := range chain[1:] {
		others.AddCert(c)
	}
	_, err = chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: others, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

// TestSucceed checks that each peer that trusts any earlier authority accepts certificates of a later
// one, and that no peer that trusts only a later authority accepts certificates of an earlier one.
func TestSucceed(t *testing.T) {
	clk := testclock.NewFakeClock(time.Now())
	all := succession(t, 0, time.Hour, clk)
	names := map[string]bool{}
	for signer, a := range all {
		names[a.Cert.Subject.CommonName] = true
		presented, _, err := a.Issue(pki.Leaf{Name: "u", Client: true, Hosts: []string{"h"}}, clk)
		if err != nil {
			t.Fatal(err)
		}
		for trusted, root := range all {
			if got := accepted(t, presented, root, clk.Now()); got != (trusted <= signer) {
				t.Errorf("authority %d accepts a certificate of authority %d: %t", trusted, signer, got)
			}
		}
	}
	if len(names) != generations || !names["kubernetes-10"] {
		t.Errorf("names %v", names)
	}
}

// TestExpiredAuthorities checks that certificates of the latest authority are accepted when earlier ones
// have expired, and that what vouches for expired authorities is not presented any more.
func TestExpiredAuthorities(t *testing.T) {
	clk := testclock.NewFakeClock(time.Now())
	const life, between = 10 * time.Minute, 4 * time.Minute
	all := succession(t, life, between, clk)
	last := all[generations-1]
	presented, _, err := last.Issue(pki.Leaf{Name: "u", Client: true}, clk)
	if err != nil {
		t.Fatal(err)
	}
	for i, root := range all {
		alive := clk.Now().Before(root.Cert.NotAfter)
		if got := accepted(t, presented, root, clk.Now()); got != alive {
			t.Errorf("a peer that trusts authority %d, which is valid: %t, accepts the certificate: %t", i, alive, got)
		}
	}
	if n := len(last.Cross(clk.Now())); n != 2 { // those before were made more than ten minutes ago
		t.Errorf("%d cross certificates are presented", n)
	}
	leaf, _, err := last.Issue(pki.Leaf{Name: "u", Life: time.Hour}, clk)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "crt")
	if err := os.WriteFile(file, leaf, 0o600); err != nil {
		t.Fatal(err)
	}
	if cert, err := pki.ReadCertificate(file); err != nil || !cert.NotAfter.Equal(last.Cert.NotAfter) {
		t.Errorf("the certificate outlives its authority: %v, %v", cert.NotAfter, err)
	}
}

// TestReadBundle checks that the authority that signs is the one whose key is there, whatever its
// position in the bundle, and that a key without its certificate is an error.
func TestReadBundle(t *testing.T) {
	clk := testclock.NewFakeClock(time.Now())
	all := succession(t, 0, time.Hour, clk)
	base := filepath.Join(t.TempDir(), "ca")
	write := func(ending string, data []byte) {
		t.Helper()
		if err := os.WriteFile(base+ending, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(".crt", pki.Encode(all[0].Cert, all[1].Cert))
	write("-cross.crt", pki.Encode(all[1].AllCross()...))
	for i, a := range all[:2] {
		key, err := a.Key()
		if err != nil {
			t.Fatal(err)
		}
		write(".key", key)
		got, err := pki.ReadAuthority(base)
		if err != nil || !got.Cert.Equal(a.Cert) || len(got.AllCross()) != i {
			t.Errorf("key %d: %+v, %v", i, got, err)
		}
	}
	key, err := all[2].Key()
	if err != nil {
		t.Fatal(err)
	}
	write(".key", key)
	if _, err := pki.ReadAuthority(base); err == nil {
		t.Error("an authority that is not trusted signs")
	}
}

// TestDerive checks that derived keys depend on the purpose and the authority, and on nothing else.
func TestDerive(t *testing.T) {
	clk := testclock.NewFakeClock(time.Now())
	all := succession(t, 0, time.Hour, clk)
	derive := func(a *pki.Authority, purpose string) []byte {
		t.Helper()
		out, err := a.Derive(purpose)
		if err != nil || len(out) != 32 {
			t.Fatalf("%d bytes, %v", len(out), err)
		}
		return out
	}
	one := derive(all[0], "one")
	if !bytes.Equal(one, derive(all[0], "one")) {
		t.Error("the key changes")
	}
	if bytes.Equal(one, derive(all[0], "two")) || bytes.Equal(one, derive(all[1], "one")) {
		t.Error("two keys are equal")
	}
}
