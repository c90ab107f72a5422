// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/authn"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// writePair writes a self-signed certificate and its key.
func writePair(t *testing.T, clk clock.Clock, certFile, keyFile string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(clk.Now().UnixNano()), NotBefore: clk.Now(), NotAfter: clk.Now().AddDate(1, 0, 0),
		Subject: pkix.Name{CommonName: "keelson-apiserver"}, DNSNames: []string{"localhost", "kubernetes"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := certutil.WriteCert(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})); err != nil {
		t.Fatal(err)
	}
	if err := keyutil.WriteKey(keyFile,
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})); err != nil {
		t.Fatal(err)
	}
}

// TestServingFollowsItsFiles checks that a renewed certificate is used without a restart, and that
// files that do not match are ignored.
func TestServingFollowsItsFiles(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := &config.Config{TLSCertFile: filepath.Join(dir, "tls.crt"), TLSKeyFile: filepath.Join(dir, "tls.key")}
		clk := clock.Real()
		issue := func() *big.Int { // issue writes a new certificate and returns its serial number, which is the time
			t.Helper()
			writePair(t, clk, cfg.TLSCertFile, cfg.TLSKeyFile)
			return big.NewInt(clk.Now().UnixNano())
		}
		first := issue()
		s, err := newServing(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.config()
		if err != nil {
			t.Fatal(err)
		}
		presents := func(when string, want *big.Int) {
			t.Helper()
			cert, err := c.GetCertificate(&tls.ClientHelloInfo{})
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := x509.ParseCertificate(cert.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			if leaf.SerialNumber.Cmp(want) != 0 {
				t.Errorf("%s: presents number %v, want %v", when, leaf.SerialNumber, want)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.run(ctx, clk)
		}()
		presents("at first", first)
		clk.Sleep(certReload * 3 / 2)
		second := issue()
		clk.Sleep(certReload)
		presents("renewed", second)
		if err := os.WriteFile(cfg.TLSKeyFile, []byte("half of a key"), 0o600); err != nil {
			t.Fatal(err)
		}
		clk.Sleep(certReload)
		presents("with a broken key", second)
		third := issue()
		clk.Sleep(certReload)
		presents("mended", third)
		stop()
		<-done
	})
}

// TestServingAcceptableAuthorities checks that the server names the authorities of clients and of front
// proxies in the handshake, and follows changes of their files.
func TestServingAcceptableAuthorities(t *testing.T) {
	dir := t.TempDir()
	clk := clock.Real()
	s := &serving{log: slog.New(slog.DiscardHandler)}
	var files []string
	for _, name := range []string{"clients", "proxies"} {
		file := filepath.Join(dir, name+".crt")
		writePair(t, clk, file, filepath.Join(dir, name+".key"))
		ca, err := authn.LoadCAFile(name, file)
		if err != nil {
			t.Fatal(err)
		}
		s.cas, files = append(s.cas, ca), append(files, file)
	}
	pool := func() *x509.CertPool {
		t.Helper()
		base, err := s.config()
		if err != nil {
			t.Fatal(err)
		}
		c, err := base.GetConfigForClient(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return c.ClientCAs
	}
	want := func(when string) {
		t.Helper()
		all := x509.NewCertPool()
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.AppendCertsFromPEM(data)
		}
		if !pool().Equal(all) {
			t.Errorf("%s: the server does not name the authorities of both files", when)
		}
	}
	want("at first")
	if first, second := pool(), pool(); first != second {
		t.Error("the pool is built for each handshake")
	}
	writePair(t, clk, files[1], filepath.Join(dir, "proxies.key"))
	if err := s.cas[1].Reload(); err != nil {
		t.Fatal(err)
	}
	want("after a change")
}

// TestOwnCertificate checks that the self-signed certificate is kept in a directory for the next
// start, and that an incomplete pair is not replaced.
func TestOwnCertificate(t *testing.T) {
	cfg := config.Default()
	cfg.BindAddress, cfg.AdvertiseAddress, cfg.Serving.CertDir = "0.0.0.0", "192.0.2.1",
		filepath.Join(t.TempDir(), "certs")
	log := slog.New(slog.DiscardHandler)
	first, err := newServing(&cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	leaf := first.cert.Load().Leaf
	names := slices.Concat(leaf.DNSNames, []string{fmt.Sprint(leaf.IPAddresses)})
	if want := []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost",
		"[192.0.2.1 10.0.0.1]"}; !slices.Equal(names, want) {
		t.Errorf("the certificate is for %v, want %v", names, want)
	}
	second, err := newServing(&cfg, log)
	if err != nil || !second.cert.Load().Leaf.Equal(leaf) {
		t.Errorf("another start has another certificate, or %v", err)
	}
	key := filepath.Join(cfg.Serving.CertDir, "apiserver.key")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	want := "error creating self-signed certificates: error reading " + key +
		", certificate and key must be supplied as a pair"
	if _, err := newServing(&cfg, log); err == nil || err.Error() != want {
		t.Errorf("without the key: %v, want %s", err, want)
	}
}

// TestProtocols checks that clients are offered HTTP/2 unless it is disabled.
func TestProtocols(t *testing.T) {
	for off, want := range map[bool][]string{false: {"h2", "http/1.1"}, true: {"http/1.1"}} {
		cfg := config.Default()
		cfg.Serving.DisableHTTP2 = off
		s, err := newServing(&cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.config()
		if err != nil || !slices.Equal(c.NextProtos, want) {
			t.Errorf("switched off %t: %v, %v; want %v", off, c.NextProtos, err, want)
		}
	}
}
