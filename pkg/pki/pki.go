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
// The file NAME.crt of an authority may have several certificates: the authorities that are trusted.
// The one that signs is that with the public key of NAME.key. NAME-cross.crt has the certificates by
// which earlier authorities vouch for it (see [Authority.Succeed]). They are appended to each
// certificate that it signs, so that a peer that trusts only an earlier authority accepts it too.
//
// The package does not know which certificates a cluster needs, and when an authority is replaced.
package pki

import (
	"bytes"
	"cmp"
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
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/atomicfile"
)

// LeafLife is the lifetime of certificates that are not an authority's.
const LeafLife = 365 * 24 * time.Hour

const (
	// AuthorityLife is the lifetime of authorities.
	AuthorityLife = 10 * LeafLife
	// backdate is how long before the current time a certificate becomes valid, in case other
	// clocks are behind. For short lifetimes it is a part of them, see validFrom.
	backdate     = 5 * time.Minute
	backdatePart = 8
)

// Authority is a certificate authority: a certificate and its key. It is safe for concurrent use.
type Authority struct {
	Cert *x509.Certificate
	key  crypto.Signer
	// cross has the certificate for the authority's key that its predecessor has signed, then the one
	// for the predecessor's key, and so on.
	cross []*x509.Certificate
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
	// Life is the lifetime. If it is 0, the certificate lives for LeafLife. No certificate outlives
	// its authority.
	Life time.Duration
}

// OpenAuthority reads a certificate authority from base.crt and base.key. It creates a self-signed
// authority with the name if one of these files does not exist. A new authority lives for the given
// duration, or for AuthorityLife if it is 0.
func OpenAuthority(base, name string, life time.Duration, c clock.Clock) (*Authority, error) {
	if exists(base+".crt") && exists(base+".key") {
		return ReadAuthority(base)
	}
	a, err := newAuthority(name, life, c)
	if err == nil {
		err = a.write(base)
	}
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	return ReadAuthority(base)
}

// newAuthority makes a self-signed authority.
func newAuthority(name string, life time.Duration, c clock.Clock) (*Authority, error) {
	life = cmp.Or(life, AuthorityLife)
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             validFrom(life, c),
		NotAfter:              c.Now().Add(life),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{name},
	}
	cert, err := sign(template, template, key.Public(), key)
	return &Authority{Cert: cert, key: key}, err
}

// ReadAuthority reads the certificate authority that signs from base.crt, base.key and, if there is
// one, base-cross.crt. The key may be of any type that Go can sign with.
func ReadAuthority(base string) (*Authority, error) {
	bundle, err := ReadCertificates(base + ".crt")
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(base + ".key")
	if err != nil {
		return nil, fmt.Errorf("read PEM: %w", err)
	}
	cross, err := ReadCertificates(base + "-cross.crt")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	a, err := NewAuthority(bundle, cross, key)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", base, err)
	}
	return a, nil
}

var errNotTrusted = errors.New("no certificate belongs to the key")

// NewAuthority returns the authority with a private key in PEM. Its certificate is that in bundle
// which belongs to the key. cross may have the certificates by which earlier authorities vouch for
// others.
func NewAuthority(bundle, cross []*x509.Certificate, keyPEM []byte) (*Authority, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("private key: %T cannot sign", parsed)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	ours := func(c *x509.Certificate) bool { return bytes.Equal(c.RawSubjectPublicKeyInfo, public) }
	at := slices.IndexFunc(bundle, ours)
	if at < 0 {
		return nil, errNotTrusted
	}
	a := &Authority{Cert: bundle[at], key: key}
	if at := slices.IndexFunc(cross, ours); at >= 0 {
		a.cross = cross[at:]
	}
	return a, nil
}

// ReadCertificates reads all certificates in a PEM file. There is at least one.
func ReadCertificates(file string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read PEM: %w", err)
	}
	certs, err := cert.ParseCertsPEM(data)
	if err != nil {
		return nil, fmt.Errorf("certificates %s: %w", file, err)
	}
	return certs, nil
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

// Issue signs a certificate that l describes, for a new key, as Sign does. It returns both in PEM.
func (a *Authority) Issue(l Leaf, c clock.Clock) (cert, key []byte, err error) {
	life := cmp.Or(l.Life, LeafLife)
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: l.Name, Organization: l.Organizations},
		NotBefore: validFrom(life, c),
		NotAfter:  c.Now().Add(life),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
	if template.NotAfter.After(a.Cert.NotAfter) {
		template.NotAfter = a.Cert.NotAfter
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
	if cert, err = a.Sign(template, private.Public(), c); err != nil {
		return nil, nil, err
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(private); err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	return cert, key, nil
}

// Sign signs a certificate for a public key, with another serial number than that of the template, and
// returns it in PEM. Cross certificates of the authority follow the certificate.
func (a *Authority) Sign(template *x509.Certificate, public crypto.PublicKey, c clock.Clock) ([]byte, error) {
	leaf, err := sign(template, a.Cert, public, a.key)
	if err != nil {
		return nil, err
	}
	return Encode(append([]*x509.Certificate{leaf}, a.Cross(c.Now())...)...), nil
}

// IssueTo signs a certificate that l describes, and writes it and its key to files.
func (a *Authority) IssueTo(certFile, keyFile string, l Leaf, c clock.Clock) error {
	cert, key, err := a.Issue(l, c)
	if err != nil {
		return err
	}
	if l.WithAuthority {
		// The last one: some clients follow only the first certificate with the right subject, and would
		// not find the way through a cross certificate.
		cert = append(cert, Encode(a.Cert)...)
	}
	return writePair(certFile, cert, keyFile, key)
}

// Current reports whether a certificate and its key exist, the authority has signed the certificate,
// and it is not due.
func (a *Authority) Current(certFile, keyFile string, c clock.Clock) bool {
	if !exists(keyFile) {
		return false
	}
	cert, err := ReadCertificate(certFile)
	return err == nil && a.Signed(cert) && !Due(cert, c.Now())
}

// Signed reports whether the authority has signed a certificate.
func (a *Authority) Signed(cert *x509.Certificate) bool {
	return cert.CheckSignatureFrom(a.Cert) == nil
}

// Due reports whether a certificate must be renewed, because less than a third of its lifetime is
// left.
func Due(cert *x509.Certificate, now time.Time) bool {
	return DueIn(cert.NotAfter.Sub(now), cert.NotAfter.Sub(cert.NotBefore))
}

// DueIn reports whether a certificate must be renewed of whose lifetime the given time is left.
func DueIn(left, life time.Duration) bool { return left < life/3 }

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

// sign issues a certificate for a public key, signed with the authority's key (the last argument).
func sign(template, parent *x509.Certificate, public crypto.PublicKey, by crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("serial number: %w", err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return x509.ParseCertificate(der)
}

// validFrom returns when a new certificate that lives for the given duration becomes valid. If the time
// before its issue were longer than its life, it would soon be due.
func validFrom(life time.Duration, c clock.Clock) time.Time {
	return c.Now().Add(-min(backdate, life/backdatePart))
}

// Encode returns certificates in PEM.
func Encode(certs ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})...)
	}
	return out
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
