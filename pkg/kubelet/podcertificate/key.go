// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podcertificate

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// PEM types.
const (
	privateKeyType  = "PRIVATE KEY"
	certificateType = "CERTIFICATE"
)

// generateKey generates a private key of one of the types that the API permits.
func generateKey(keyType string) (crypto.Signer, error) {
	switch keyType {
	case "RSA3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("unknown key type %q", keyType)
}

// newKey generates a private key. It returns the key as PEM, and a DER-encoded PKCS#10 request that
// contains only the public key. The signature of the request proves possession of the key.
func newKey(keyType string) (key, request []byte, err error) {
	signer, err := generateKey(keyType)
	if err != nil {
		return nil, nil, fmt.Errorf("generate private key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return nil, nil, fmt.Errorf("encode private key: %w", err)
	}
	request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("sign PKCS#10 request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateKeyType, Bytes: der}), request, nil
}

// cleanChain returns the certificates of a PEM chain in their order, without headers and without
// text between them.
func cleanChain(chain string) []byte {
	var out bytes.Buffer
	for block, rest := pem.Decode([]byte(chain)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == certificateType {
			// Writing to a Buffer never fails.
			_ = pem.Encode(&out, &pem.Block{Type: certificateType, Bytes: block.Bytes})
		}
	}
	return out.Bytes()
}
