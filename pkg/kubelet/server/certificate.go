// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	cliflag "k8s.io/component-base/cli/flag"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"keelson.dev/keelson/pkg/daemon"
)

// certificate returns the function from which the TLS server gets its certificate.
func certificate(cfg Config) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if cfg.GetCertificate != nil {
		return cfg.GetCertificate, nil
	}
	f := &daemon.KeyPair{CertFile: cfg.Kubelet.TLSCertFile, KeyFile: cfg.Kubelet.TLSPrivateKeyFile}
	if f.CertFile == "" && f.KeyFile == "" {
		f.CertFile = filepath.Join(cfg.CertDir, "kubelet.crt")
		f.KeyFile = filepath.Join(cfg.CertDir, "kubelet.key")
		if err := ensureSelfSigned(f.CertFile, f.KeyFile, cfg.NodeName, cfg.NodeAddresses); err != nil {
			return nil, err
		}
	}
	if _, err := f.Get(); err != nil {
		return nil, err
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.Get() }, nil
}

func ensureSelfSigned(certFile, keyFile, name string, addresses []string) error {
	ok, err := certutil.CanReadCertAndKey(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	if ok {
		return nil
	}
	var ips []net.IP
	var names []string
	for _, a := range addresses {
		if ip := net.ParseIP(a); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, a)
		}
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey(name, ips, names)
	if err != nil {
		return fmt.Errorf("self-signed certificate: %w", err)
	}
	if err := errors.Join(certutil.WriteCert(certFile, cert), keyutil.WriteKey(keyFile, key)); err != nil {
		return fmt.Errorf("self-signed certificate: %w", err)
	}
	return nil
}

// tlsConfig returns the configured TLS settings.
func tlsConfig(cfg Config) (*tls.Config, error) {
	get, err := certificate(cfg)
	if err != nil {
		return nil, err
	}
	version, err := cliflag.TLSVersion(cfg.Kubelet.TLSMinVersion)
	if err != nil {
		return nil, fmt.Errorf("tlsMinVersion: %w", err)
	}
	suites, err := cliflag.TLSCipherSuites(cfg.Kubelet.TLSCipherSuites)
	if err != nil {
		return nil, fmt.Errorf("tlsCipherSuites: %w", err)
	}
	c := &tls.Config{GetCertificate: get, MinVersion: version, CipherSuites: suites}
	for _, id := range cfg.Kubelet.TLSCurvePreferences {
		c.CurvePreferences = append(c.CurvePreferences, tls.CurveID(id))
	}
	if cfg.Kubelet.Authentication.X509.ClientCAFile != "" {
		// TLS only requests the certificate, and the authenticator verifies it. So a client with a
		// certificate of another CA can still authenticate with a token.
		c.ClientAuth = tls.RequestClientCert
	}
	return c, nil
}
