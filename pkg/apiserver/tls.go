// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	cliflag "k8s.io/component-base/cli/flag"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/authn"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// certReload is how often certificate files are checked for changes.
const certReload = time.Minute

// serving has the server's certificates and the authorities of client certificates. Both are
// reloaded when their files change.
type serving struct {
	certFile, keyFile string
	cert              atomic.Pointer[tls.Certificate]
	namedFiles        []cliflag.NamedCertKey
	named             atomic.Pointer[map[string]*tls.Certificate] // certificates by server name
	cas               []*authn.CAFile
	transport         config.Transport
	protocols         []string // protocols that the server offers, most preferred first
	log               *slog.Logger
}

// newServing loads the certificate files. Without a configured certificate it creates a self-signed
// one.
func newServing(cfg *config.Config, log *slog.Logger) (*serving, error) {
	s := &serving{
		certFile: cfg.TLSCertFile, keyFile: cfg.TLSKeyFile, namedFiles: cfg.SNICerts, transport: cfg.Transport,
		protocols: protocols(&cfg.Serving), log: log,
	}
	if err := s.reload(); err != nil || s.certFile != "" {
		return s, err
	}
	if dir := cfg.Serving.CertDir; dir != "" {
		if err := s.keepSelfSigned(dir, cfg); err != nil {
			return nil, fmt.Errorf("error creating self-signed certificates: %w", err)
		}
		return s, s.reload()
	}
	certPEM, keyPEM, err := selfSigned(cfg)
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("self-signed certificate: %w", err)
	}
	s.cert.Store(&cert)
	return s, nil
}

func (s *serving) reload() error {
	named, err := loadNamed(s.namedFiles)
	if err != nil {
		return err
	}
	if s.certFile != "" {
		cert, err := tls.LoadX509KeyPair(s.certFile, s.keyFile)
		if err != nil {
			return err
		}
		s.cert.Store(&cert)
	}
	s.named.Store(&named)
	return nil
}

// run reloads the files until ctx is done. If a file cannot be read, its previous contents stay in
// use.
func (s *serving) run(ctx context.Context, clk clock.Clock) {
	ticker := clk.NewTicker(certReload)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if err := s.reload(); err != nil {
			s.log.Error("Failed to reload certificate", "err", err)
		}
		for _, ca := range s.cas {
			if err := ca.Reload(); err != nil {
				s.log.Error("Failed to reload certificate authorities", "err", err)
			}
		}
	}
}

// config returns a TLS configuration that requests client certificates and does not verify them:
// which authority must have signed a certificate depends on its use (package authn).
func (s *serving) config() (*tls.Config, error) {
	base := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     s.protocols,
		ClientAuth:     tls.RequestClientCert,
		GetCertificate: s.certificate,
	}
	if err := s.transport.TLS(base); err != nil {
		return nil, err
	}
	if len(s.cas) == 0 {
		return base, nil
	}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		// The names of the authorities help clients with several certificates to choose one.
		c := base.Clone()
		c.GetConfigForClient = nil
		c.ClientCAs = s.cas[0].Pool()
		return c, nil
	}
	return base, nil
}
