// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/outbound"
	"keelson.dev/keelson/pkg/pki"
)

// TestFollowFiles replaces the authority of kubelets and the client certificate while requests are sent.
// A second later, each request verifies the kubelet with the present authorities, and none is sent in a
// connection with an old client certificate.
func TestFollowFiles(t *testing.T) {
	dir := t.TempDir()
	first, err := pki.OpenAuthority(filepath.Join(dir, "first"), "ca", 0, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	second, err := first.Succeed(0, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	third, err := pki.OpenAuthority(filepath.Join(dir, "third"), "other", 0, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	now := testingclock.NewFakeClock(time.Now())
	cfg := KubeletConfig{Clock: now, CAFile: filepath.Join(dir, "ca"), CertFile: filepath.Join(dir, "crt"),
		KeyFile: filepath.Join(dir, "key"), Outbound: outbound.Policy{}}
	trust := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(cfg.CAFile, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	issue := func(name string) {
		t.Helper()
		if err := first.IssueTo(cfg.CertFile, cfg.KeyFile, pki.Leaf{Name: name, Client: true}, clock.Real()); err != nil {
			t.Fatal(err)
		}
	}
	trust(pki.Encode(first.Cert))
	issue("one")
	k, err := NewKubelets(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	serve := func(by *pki.Authority) *httptest.Server {
		t.Helper()
		crt, key := filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
		if err := by.IssueTo(crt, key, pki.Leaf{Name: "kubelet", Hosts: []string{"127.0.0.1"}}, clock.Real()); err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(crt, key)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(r.TLS.PeerCertificates[0].Subject.CommonName))
		}))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	asks := func(s *httptest.Server) string {
		t.Helper()
		resp, err := (&http.Client{Transport: k.transports().verified}).Get(s.URL)
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		name := make([]byte, 100)
		n, _ := resp.Body.Read(name)
		return string(name[:n])
	}
	old, succeeding, other := serve(first), serve(second), serve(third)
	if a, b, c := asks(old), asks(succeeding), asks(other); a != "one" || b != "one" || c != "" {
		t.Errorf("first authority: %q, %q, %q", a, b, c)
	}
	issue("two")
	if a := asks(old); a != "one" {
		t.Errorf("the files are read at once: %q", a)
	}
	now.Step(time.Second)
	if a := asks(old); a != "two" {
		t.Errorf("a request after the renewal has the certificate %q", a)
	}
	trust([]byte("half a fi"))
	now.Step(time.Second)
	if a := asks(old); a != "two" {
		t.Errorf("with a broken file: %q", a)
	}
	trust(pki.Encode(third.Cert))
	now.Step(time.Second)
	if a, c := asks(old), asks(other); a != "" || c != "two" {
		t.Errorf("another authority: %q, %q", a, c)
	}
}
