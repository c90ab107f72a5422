// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki makes the keys and certificates of a cluster, and keeps them in files as kubeadm does:
// NAME.crt and NAME.key, in PEM.
//
// Invariants:
//
//   - A file is replaced as a whole, also if the machine loses power: a reader finds the old content
//     or the new one.
//   - The file of a certificate is never there without the file of its key.
//   - Private keys are readable by their owner only.
//
// The package does not know which certificates a cluster needs, and does not exchange authorities.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/util/keyutil"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/atomicfile"
)

// LeafLife is the lifetime of certificates that are not an authority's.
const LeafLife = 365 * 24 * time.Hour

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	// backdate is how long before the current time a certificate becomes valid, in case other
	// clocks are behind.
	backdate = 5 * time.Minute
)

// Authority is a certificate authority: a certificate and its key. It is safe for concurrent use.
type Authority struct {
	Cert *x509.Certificate
	key  crypto.Signer
}

// Leaf describes a certificate that is not an authority's.
type Leaf struct {
	Name          string // the common name of the subject
	Organizations []string
	// Client means that the certificate authenticates a client. Without it, and with Hosts, the
	// certificate authenticates a server.
	Client bool
	Hosts  []string // DNS names and IP addresses
	// WithAuthority adds the authority's certificate to the file, so that a server presents it too.
	WithAuthority bool
}

// OpenAuthority reads a certificate authority from base.crt and base.key. It creates a self-signed
// authority with the name if one of these files does not exist.
func OpenAuthority(base, name string, c clock.Clock) (*Authority, error) {
	if exists(base+".crt") && exists(base+".key") {
		return ReadAuthority(base)
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             c.Now().Add(-backdate),
		NotAfter:              c.Now().Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{name},
	}
	cert, private, err := sign(template, template, key, key)
	if err == nil {
		err = writePair(base+".crt", cert, base+".key", private)
	}
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	return ReadAuthority(base)
}

// ReadAuthority reads a certificate authority from base.crt and base.key. The key may be of any type
// that Go can sign with.
func ReadAuthority(base string) (*Authority, error) {
	cert, err := ReadCertificate(base + ".crt")
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(base + ".key")
	if err != nil {
		return nil, fmt.Errorf("read PEM: %w", err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("key %s.key: %w", base, err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("key %s.key: %T cannot sign", base, parsed)
	}
	return &Authority{Cert: cert, key: key}, nil
}

// ReadCertificate reads the first certificate in a PEM file.
func ReadCertificate(file string) (*x509.Certificate, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read PEM: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s: %w", file, errNoPEM)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", file, err)
	}
	return cert, nil
}

var errNoPEM = errors.New("no PEM block")

// Issue signs a certificate that l describes, for a new key, and returns both in PEM.
func (a *Authority) Issue(l Leaf, c clock.Clock) (cert, key []byte, err error) {
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: l.Name, Organization: l.Organizations},
		NotBefore: c.Now().Add(-backdate),
		NotAfter:  c.Now().Add(LeafLife),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
	if !l.Client || len(l.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if l.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	for _, h := range l.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	private, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	return sign(template, a.Cert, private, a.key)
}

// IssueTo signs a certificate that l describes, and writes it and its key to files.
func (a *Authority) IssueTo(certFile, keyFile string, l Leaf, c clock.Clock) error {
	cert, key, err := a.Issue(l, c)
	if err != nil {
		return err
	}
	if l.WithAuthority {
		cert = append(cert, encodeCertificate(a.Cert.Raw)...)
	}
	return writePair(certFile, cert, keyFile, key)
}

// Current reports whether a certificate and its key exist, and the certificate is not due.
func Current(certFile, keyFile string, c clock.Clock) bool {
	if !exists(keyFile) {
		return false
	}
	cert, err := ReadCertificate(certFile)
	return err == nil && !Due(cert, c.Now())
}

// Due reports whether a certificate must be renewed, because less than a third of its lifetime is
// left.
func Due(cert *x509.Certificate, now time.Time) bool {
	return cert.NotAfter.Sub(now) < cert.NotAfter.Sub(cert.NotBefore)/3
}

// ServiceAccountKeys creates the key pair that signs service account tokens, in base.key and
// base.pub, if one of these files does not exist.
func ServiceAccountKeys(base string) error {
	if exists(base+".key") && exists(base+".pub") {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	if err := atomicfile.WriteDurably(base+".key", private, 0o600); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: keyutil.PublicKeyBlockType, Bytes: der})
	return atomicfile.WriteDurably(base+".pub", public, 0o600)
}

// writePair writes a certificate and its key. It writes the key first, so that a program that finds
// the certificate also finds its key.
func writePair(certFile string, cert []byte, keyFile string, key []byte) error {
	if err := atomicfile.WriteDurably(keyFile, key, 0o600); err != nil {
		return err
	}
	return atomicfile.WriteDurably(certFile, cert, 0o600)
}

// sign issues a certificate for a key, signed with the authority's key (the last argument). It
// returns the certificate and its key in PEM.
func sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey, by crypto.Signer) (certPEM, keyPEM []byte,
	err error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("serial number: %w", err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return nil, nil, fmt.Errorf("sign: %w", err)
	}
	if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	return encodeCertificate(der), keyPEM, nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}
