// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net"
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
	log               *slog.Logger
}

// newServing loads the files; without a certificate it makes one that signs itself.
func newServing(cfg *config.Config, cas []*authn.CAFile, clk clock.Clock, log *slog.Logger) (*serving, error) {
	s := &serving{certFile: cfg.TLSCertFile, keyFile: cfg.TLSKeyFile, namedFiles: cfg.SNICerts, cas: cas, transport: cfg.Transport, log: log}
	if err := s.reload(); err != nil || s.certFile != "" {
		return s, err
	}
	cert, err := selfSigned(clk.Now(), cfg.BindAddress, cfg.AdvertiseAddress)
	if err != nil {
		return nil, err
	}
	s.cert.Store(cert)
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
			return fmt.Errorf("serving certificate: %w", err)
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
		NextProtos:     []string{"h2", "http/1.1"},
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

// selfSigned makes a certificate for a server that was given none.
func selfSigned(now time.Time, addresses ...string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("self-signed certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "keelson-apiserver"},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		IsCA:        true, BasicConstraintsValid: true,
	}
	for _, a := range addresses {
		if ip := net.ParseIP(a); ip != nil && !ip.IsUnspecified() {
			template.IPAddresses = append(template.IPAddresses, ip)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("self-signed certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
