// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net"
	"path/filepath"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/services"
)

// pairName is the base name of the files of the self-signed certificate and its key.
const pairName = "apiserver"

// protocols returns the HTTP protocols that the server offers, most preferred first.
func protocols(cfg *config.Serving) []string {
	if cfg.DisableHTTP2 {
		return []string{"http/1.1"}
	}
	return []string{"h2", "http/1.1"}
}

// keepSelfSigned loads the self-signed certificate and key from dir, or creates them there. The
// same certificate is used after a restart, so that clients can trust it.
func (s *serving) keepSelfSigned(dir string, cfg *config.Config) error {
	s.certFile, s.keyFile = filepath.Join(dir, pairName+".crt"), filepath.Join(dir, pairName+".key")
	if there, err := certutil.CanReadCertAndKey(s.certFile, s.keyFile); there || err != nil {
		return err
	}
	cert, key, err := selfSigned(cfg)
	if err != nil {
		return err
	}
	if err := certutil.WriteCert(s.certFile, cert); err != nil {
		return err
	}
	if err := keyutil.WriteKey(s.keyFile, key); err != nil {
		return err
	}
	s.log.Info("Generated self-signed certificate", "cert", s.certFile, "key", s.keyFile)
	return nil
}

// selfSigned creates a self-signed certificate and its key.
func selfSigned(cfg *config.Config) (cert, key []byte, err error) {
	var addresses []net.IP
	if len(cfg.ServiceClusterIPRanges) > 0 {
		addresses = append(addresses, net.IP(services.FirstIP(cfg.ServiceClusterIPRanges[0]).AsSlice()))
	}
	names := []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes"}
	if bound := net.ParseIP(cfg.BindAddress); bound != nil && bound.IsUnspecified() {
		names = append(names, "localhost")
	} else if bound != nil {
		addresses = append(addresses, bound)
	}
	cert, key, err = certutil.GenerateSelfSignedCertKey(advertised(cfg).String(), addresses, names)
	return cert, key, wrap("self-signed certificate", err)
}
