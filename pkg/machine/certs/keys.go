// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/cipher"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/pki"
)

// keyEnding is the ending of the keys in the Secret under which there are encrypted private keys. The
// other keys are those of the ConfigMap.
const keyEnding = ".key"

// derivation is what keys are derived for (HKDF's info).
const derivation = "keelson: private key of the next authority "

func seal(by *pki.Authority, name string) (cipher.AEAD, error) {
	key, err := by.Derive(derivation + name)
	if err != nil {
		return nil, err
	}
	return pki.NewAEAD(key)
}

// successors makes the authorities that follow those in old. It returns them as a Secret: the new
// authority as the only certificate of its bundle, its cross certificates, and its private key,
// encrypted with a key that is derived from the old one's.
func successors(old map[string]*pki.Authority, life time.Duration, clk clock.Clock) (*v1.Secret, error) {
	out := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: keysSecret}, Data: map[string][]byte{}}
	for name, a := range old {
		next, err := a.Succeed(life, clk)
		if err != nil {
			return nil, fmt.Errorf("successor of %s: %w", name, err)
		}
		key, err := next.Key()
		if err != nil {
			return nil, err
		}
		aead, err := seal(a, name)
		if err != nil {
			return nil, err
		}
		out.Data[keyOf(name)+bundleEnding] = pki.Encode(next.Cert)
		out.Data[keyOf(name)+crossEnding] = pki.Encode(next.AllCross()...)
		out.Data[keyOf(name)+keyEnding] = aead.Seal(nil, nil, key, next.Cert.Raw)
	}
	return out, nil
}

var errNoKey = errors.New("the cluster does not have the key of the new authority any more; reset this machine and " +
	"let it join again")

// open returns the successor of the authority by, with its key, from a Secret of successors.
func open(s *v1.Secret, name string, by *pki.Authority) (*pki.Authority, error) {
	next, cross, err := announced(s, name)
	if err != nil {
		return nil, err
	}
	aead, err := seal(by, name)
	if err != nil {
		return nil, err
	}
	key, err := aead.Open(nil, nil, s.Data[keyOf(name)+keyEnding], next.Raw)
	if err != nil {
		return nil, fmt.Errorf("key of the new authority %s: %w", name, err)
	}
	return pki.NewAuthority([]*x509.Certificate{next}, cross, key)
}

// announced returns the successor of an authority and its cross certificates from a Secret of
// successors.
func announced(s *v1.Secret, name string) (next *x509.Certificate, cross []*x509.Certificate, err error) {
	bundle, ok := s.Data[keyOf(name)+bundleEnding]
	if !ok {
		return nil, nil, fmt.Errorf("%s: %w", name, errNoKey)
	}
	certs, err := cert.ParseCertsPEM(bundle)
	if err != nil {
		return nil, nil, fmt.Errorf("new authority %s: %w", name, err)
	}
	cross, err = cert.ParseCertsPEM(s.Data[keyOf(name)+crossEnding])
	if err != nil {
		return nil, nil, fmt.Errorf("new authority %s: %w", name, err)
	}
	return certs[0], cross, nil
}
