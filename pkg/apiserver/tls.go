// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	cliflag "k8s.io/component-base/cli/flag"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/authn"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// certReload is how often certificate files are checked for changes. Kubernetes' API server uses
// inotify; clients cannot distinguish that from a short interval.
const certReload = 2 * time.Second

// serving has the server's certificates and the authorities of client certificates. Both are
// reloaded when their files change.
type serving struct {
	certFile, keyFile string
	cert              atomic.Pointer[tls.Certificate]
	namedFiles        []cliflag.NamedCertKey
	named             atomic.Pointer[map[string]*tls.Certificate] // certificates by server name
	// content is that of the files of all certificates and keys when they were last loaded.
	content   string
	cas       []*authn.CAFile
	known     atomic.Pointer[authorities]
	transport config.Transport
	protocols []string // protocols that the server offers, most preferred first
	log       *slog.Logger
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

// authorities are the certificate authorities of all CA files. They are immutable.
type authorities struct {
	pems []string
	pool *x509.CertPool
}

// files returns the content of the files of all certificates and keys.
func (s *serving) files() (string, error) {
	var names []string
	if s.certFile != "" {
		names = append(names, s.certFile, s.keyFile)
	}
	for _, f := range s.namedFiles {
		names = append(names, f.CertFile, f.KeyFile)
	}
	var all strings.Builder
	for _, name := range names {
		data, err := os.ReadFile(filepath.Clean(name))
		if err != nil {
			return "", err
		}
		all.Write(data)
	}
	return all.String(), nil
}

// reloadChanged loads the certificates if a file has changed since the last attempt.
func (s *serving) reloadChanged() error {
	content, err := s.files()
	if err != nil || content == s.content {
		return err
	}
	s.content = content
	return s.reload()
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
	last := "" // the error that was logged last, which is not repeated
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		err := s.reloadChanged()
		for _, ca := range s.cas {
			err = errors.Join(err, ca.Reload())
		}
		if err == nil {
			continue
		}
		if text := err.Error(); text != last {
			s.log.Error("Failed to reload certificates", "err", err)
			last = text
		}
	}
}

// pool returns the authorities of clients and of front proxies.
func (s *serving) pool() *x509.CertPool {
	pems := make([]string, len(s.cas))
	for i, ca := range s.cas {
		pems[i] = ca.PEM()
	}
	known := s.known.Load()
	if known == nil || !slices.Equal(known.pems, pems) {
		known = &authorities{pems, x509.NewCertPool()}
		for _, pem := range pems {
			known.pool.AppendCertsFromPEM([]byte(pem))
		}
		s.known.Store(known)
	}
	return known.pool
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
		// Clients use the names of the authorities in the handshake to choose a certificate. Some
		// clients send no certificate if none of these authorities has signed it.
		c := base.Clone()
		c.GetConfigForClient = nil
		c.ClientCAs = s.pool()
		return c, nil
	}
	return base, nil
}
