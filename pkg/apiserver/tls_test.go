// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// writePair writes a certificate that signs itself, and its key.
func writePair(t *testing.T, clk clock.Clock, certFile, keyFile string) {
	t.Helper()
	cert, err := selfSigned(clk.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestServingFollowsItsFiles: a certificate that is renewed is presented without a
// restart, and files that make no pair leave what was read before.
func TestServingFollowsItsFiles(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := &config.Config{TLSCertFile: filepath.Join(dir, "tls.crt"), TLSKeyFile: filepath.Join(dir, "tls.key")}
		clk := clock.Real()
		issue := func() *big.Int { // its serial number is the time
			t.Helper()
			writePair(t, clk, cfg.TLSCertFile, cfg.TLSKeyFile)
			return big.NewInt(clk.Now().UnixNano())
		}
		first := issue()
		s, err := newServing(cfg, nil, clk, slog.New(slog.DiscardHandler))
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
