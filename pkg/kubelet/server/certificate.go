// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	cliflag "k8s.io/component-base/cli/flag"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// fileCertificate serves the certificate in two files, and follows when they are replaced.
type fileCertificate struct {
	certFile, keyFile string

	mu      sync.Mutex
	changed [2]time.Time // modification times of what cert was read from
	cert    *tls.Certificate
}

// get returns the present certificate; files that cannot be read, being replaced maybe, leave the old one in use.
func (f *fileCertificate) get() (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var changed [2]time.Time
	for i, path := range []string{f.certFile, f.keyFile} {
		if info, err := os.Stat(path); err == nil {
			changed[i] = info.ModTime()
		}
	}
	if f.cert != nil && changed == f.changed {
		return f.cert, nil
	}
	cert, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err == nil {
		f.cert, f.changed = &cert, changed
	}
	if f.cert == nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	return f.cert, nil
}

// certificate returns how the server finds its certificate.
func certificate(cfg Config) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if cfg.GetCertificate != nil {
		return cfg.GetCertificate, nil
	}
	f := &fileCertificate{certFile: cfg.Kubelet.TLSCertFile, keyFile: cfg.Kubelet.TLSPrivateKeyFile}
	if f.certFile == "" && f.keyFile == "" {
		f.certFile = filepath.Join(cfg.CertDir, "kubelet.crt")
		f.keyFile = filepath.Join(cfg.CertDir, "kubelet.key")
		if err := ensureSelfSigned(f.certFile, f.keyFile, cfg.NodeName, cfg.NodeAddresses); err != nil {
			return nil, err
		}
	}
	if _, err := f.get(); err != nil {
		return nil, err
	}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.get() }, nil
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

// tlsConfig returns the TLS settings that the configuration asks for.
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
	if cfg.Kubelet.Authentication.X509.ClientCAFile != "" {
		// The authenticator verifies it: a client with another CA's certificate may still bring a token.
		c.ClientAuth = tls.RequestClientCert
	}
	return c, nil
}
