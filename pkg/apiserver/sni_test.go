// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/tls"
	"log/slog"
	"path/filepath"
	"testing"

	cliflag "k8s.io/component-base/cli/flag"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// TestNamedCertificates checks that a client gets the certificate for the server name that it
// sends.
func TestNamedCertificates(t *testing.T) {
	dir, clk := t.TempDir(), clock.Real()
	issue := func(name string, names ...string) cliflag.NamedCertKey {
		t.Helper()
		pair := cliflag.NamedCertKey{Names: names, CertFile: filepath.Join(dir, name+".crt"),
			KeyFile: filepath.Join(dir, name+".key")}
		writePair(t, clk, pair.CertFile, pair.KeyFile)
		return pair
	}
	pairs := []cliflag.NamedCertKey{issue("one", "a.example.com", "*.b.example.com"),
		issue("two", "a.example.com", "localhost"), issue("three")}
	s, err := newServing(&config.Config{SNICerts: pairs}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	named := *s.named.Load()
	for name, want := range map[string]*tls.Certificate{
		"a.example.com": named["*.b.example.com"], "A.Example.com.": named["a.example.com"],
		"x.b.example.com": named["*.b.example.com"],
		"localhost":       named["localhost"], "kubernetes": named["keelson-apiserver"],
		"x.y.b.example.com": s.cert.Load(), "": s.cert.Load(),
	} {
		if got, err := s.certificate(&tls.ClientHelloInfo{ServerName: name}); err != nil || got != want || got == nil {
			t.Errorf("%q: %p, want %p (%v)", name, got, want, err)
		}
	}
	if named["localhost"] == named["a.example.com"] || named["kubernetes"] == named["localhost"] {
		t.Error("the certificates are the same")
	}
	if _, err := newServing(
		&config.Config{SNICerts: []cliflag.NamedCertKey{{CertFile: "none", KeyFile: "none"}}},
		slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a file that is not there was no error")
	}
}
