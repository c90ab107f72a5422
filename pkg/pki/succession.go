// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/util/keyutil"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/atomicfile"
)

var errPathLength = errors.New("the authority's path length constraint does not allow it to sign another one")

// Succeed makes the authority that follows a, with a new key and a name of its own. The new authority
// has a cross certificate: one with its name and key that a has signed. It lives for the given
// duration, or for AuthorityLife if it is 0.
func (a *Authority) Succeed(life time.Duration, c clock.Clock) (*Authority, error) {
	if a.Cert.MaxPathLenZero {
		return nil, errPathLength
	}
	next, err := newAuthority(successor(a.Cert.Subject.CommonName), life, c)
	if err != nil {
		return nil, err
	}
	template := *next.Cert
	template.AuthorityKeyId = nil // that of a
	if template.NotAfter.After(a.Cert.NotAfter) {
		template.NotAfter = a.Cert.NotAfter
	}
	cross, err := sign(&template, a.Cert, next.Cert.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	next.cross = append([]*x509.Certificate{cross}, a.Cross(c.Now())...)
	return next, nil
}

// successor returns the name of the authority that follows the one with the given name: NAME-2 follows
// NAME, and NAME-3 follows NAME-2.
func successor(name string) string {
	if at := strings.LastIndexByte(name, '-'); at > 0 {
		if n, err := strconv.Atoi(name[at+1:]); err == nil && n > 1 {
			return fmt.Sprintf("%s-%d", name[:at], n+1)
		}
	}
	return name + "-2"
}

// Cross returns the certificates by which earlier authorities vouch for this one, as far as they have
// not expired.
func (a *Authority) Cross(now time.Time) []*x509.Certificate {
	for i, c := range a.cross {
		if now.After(c.NotAfter) {
			return a.cross[:i:i]
		}
	}
	return a.cross[:len(a.cross):len(a.cross)]
}

// AllCross returns the certificates by which earlier authorities vouch for this one, also those that
// have expired.
func (a *Authority) AllCross() []*x509.Certificate { return a.cross }

// Derive derives a symmetric key of 256 bits from the authority's private key. purpose says what it is
// for; keys for different purposes are independent.
func (a *Authority) Derive(purpose string) ([]byte, error) {
	private, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	out, err := hkdf.Key(sha256.New, private, nil, purpose, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	return out, nil
}

// WriteKey replaces the private key in base.key by that of a, so that a signs from now on. The
// certificate in base.crt must be there already.
func (a *Authority) WriteKey(base string) error {
	key, err := a.Key()
	if err != nil {
		return err
	}
	return atomicfile.WriteDurably(base+".key", key, 0o600)
}

// Key returns the authority's private key in PEM.
func (a *Authority) Key() ([]byte, error) {
	out, err := keyutil.MarshalPrivateKeyToPEM(a.key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return out, nil
}

// write writes a new authority to base.crt and base.key.
func (a *Authority) write(base string) error {
	key, err := a.Key()
	if err != nil {
		return err
	}
	return writePair(base+".crt", Encode(a.Cert), base+".key", key)
}

// NewAEAD returns AES-GCM with a key of 32 bytes, for keys of authorities that leave a machine. Seal puts
// a random nonce before the encrypted text, where Open expects it, and neither takes one.
func NewAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("key for AES-GCM: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}
