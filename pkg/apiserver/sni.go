// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
)

// loadNamed reads the certificates of --tls-sni-cert-key, and returns them by server name. A name
// in the flag has precedence over a name in a certificate, and an earlier certificate over a later
// one.
func loadNamed(pairs []cliflag.NamedCertKey) (map[string]*tls.Certificate, error) {
	given, own := map[string]*tls.Certificate{}, map[string]*tls.Certificate{}
	for _, pair := range slices.Backward(pairs) {
		cert, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("failed to load SNI cert and key: %w", err)
		}
		for _, name := range pair.Names {
			given[strings.ToLower(name)] = &cert
		}
		if len(pair.Names) > 0 {
			continue
		}
		for _, name := range namesOf(cert.Leaf) {
			own[strings.ToLower(name)] = &cert
		}
	}
	for name, cert := range given {
		own[name] = cert
	}
	return own, nil
}

// namesOf returns the DNS names of a certificate. IP addresses are not included, because clients do
// not send them as server names.
func namesOf(cert *x509.Certificate) []string {
	names := slices.Clone(cert.DNSNames)
	cn := cert.Subject.CommonName
	domain := cn == "*" || len(validation.IsDNS1123Subdomain(strings.TrimPrefix(cn, "*."))) == 0
	if domain && net.ParseIP(cn) == nil {
		names = append(names, cn)
	}
	return names
}

// certificate returns the certificate for the server name that a client sends, or for the local
// address if it sends none. If no certificate matches, it returns the default certificate.
func (s *serving) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	named := s.named.Load()
	if named == nil || len(*named) == 0 {
		return s.cert.Load(), nil
	}
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if name == "" && hello.Conn != nil {
		if host, _, err := net.SplitHostPort(hello.Conn.LocalAddr().String()); err == nil {
			name = host
		}
	}
	if cert, ok := (*named)[name]; ok {
		return cert, nil
	}
	if _, domain, ok := strings.Cut(name, "."); ok {
		if cert, ok := (*named)["*."+domain]; ok {
			return cert, nil
		}
	}
	return s.cert.Load(), nil
}
