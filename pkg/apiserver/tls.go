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

// certReload is how often certificate files are looked at.
const certReload = time.Minute

// serving is the server's certificate and the authorities that clients may
// prove themselves by. Both follow their files.
type serving struct {
	certFile, keyFile string
	cert              atomic.Pointer[tls.Certificate]
	namedFiles        []cliflag.NamedCertKey
	named             atomic.Pointer[map[string]*tls.Certificate] // by name
	cas               []*authn.CAFile
	transport         config.Transport
	protocols         []string // that clients may speak, best first
	log               *slog.Logger
}

// newServing loads the files; without a certificate it makes one that signs itself.
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

// run follows the files until ctx is done. A file that cannot be read leaves
// what was read before.
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
			s.log.Error("Certificate not reloaded", "err", err)
		}
		for _, ca := range s.cas {
			if err := ca.Reload(); err != nil {
				s.log.Error("Certificate authorities not reloaded", "err", err)
			}
		}
	}
}

// config asks for client certificates and verifies none: which authority a
// certificate has to be of depends on what it is presented for (package authn).
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
		// The names of the authorities are a hint for clients with several certificates.
		c := base.Clone()
		c.GetConfigForClient = nil
		c.ClientCAs = s.cas[0].Pool()
		return c, nil
	}
	return base, nil
}
