// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package discovery gets the certificate authority of a cluster from one of its API servers, for a
// machine that knows only the hash of the authority's public key.
//
// Invariant: no secret is sent before the server has proved that the authority with this hash has
// signed its certificate.
//
// API servers on machines present their authority's certificate with their own. The package does not
// use kubeadm's ConfigMap cluster-info, which needs anonymous requests.
package discovery

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// timeout limits how long a server may take to present its certificates.
const timeout = 10 * time.Second

const algorithm = "sha256:"

// Hash returns the hash of a certificate's public key: "sha256:" and the SHA-256 of the
// SubjectPublicKeyInfo in hexadecimal digits, as in kubeadm's --discovery-token-ca-cert-hash.
func Hash(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return algorithm + hex.EncodeToString(sum[:])
}

// CheckHash returns an error if text is not a hash as Hash returns it.
func CheckHash(text string) error {
	digits, ok := strings.CutPrefix(strings.ToLower(text), algorithm)
	sum, err := hex.DecodeString(digits)
	if !ok || err != nil || len(sum) != sha256.Size {
		return fmt.Errorf("hash %q: want %s and %d hexadecimal digits", text, algorithm, 2*sha256.Size)
	}
	return nil
}

var (
	errNoAuthority = errors.New("the server presents no certificate authority with the given hash; it belongs to " +
		"another cluster, the cluster's authority was replaced, or somebody intercepts the connection")
	errNoCertificate = errors.New("the server presents no certificate")
)

// Authority connects to the API server at address (HOST:PORT) and returns the certificate of the
// authority that has signed the server's certificate. The authority's hash must be one of hashes.
// The server's certificate must be valid for HOST.
func Authority(ctx context.Context, address string, hashes []string) (*x509.Certificate, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	var found *x509.Certificate
	dialer := &tls.Dialer{Config: &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // the authority is not known yet; VerifyConnection checks instead
		VerifyConnection: func(state tls.ConnectionState) error {
			var err error
			found, err = verify(state.PeerCertificates, host, hashes)
			return err
		},
	}}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", address, err)
	}
	_ = conn.Close() // nothing was sent
	return found, nil
}

// verify returns the authority that has signed the first certificate of the chain. The authority
// must be in the chain and have one of the hashes, and the first certificate must be valid for host.
func verify(chain []*x509.Certificate, host string, hashes []string) (*x509.Certificate, error) {
	if len(chain) == 0 {
		return nil, errNoCertificate
	}
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	known := false
	for _, c := range chain[1:] {
		if c.IsCA && slices.ContainsFunc(hashes, func(h string) bool { return strings.EqualFold(h, Hash(c)) }) {
			known = true
			roots.AddCert(c)
			continue
		}
		others.AddCert(c)
	}
	if !known {
		return nil, errNoAuthority
	}
	paths, err := chain[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: others})
	if err != nil {
		return nil, err
	}
	return paths[0][len(paths[0])-1], nil
}
