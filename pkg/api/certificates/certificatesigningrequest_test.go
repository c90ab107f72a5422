// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// TestCertificateStays checks that an update cannot change an issued certificate. If the new
// certificate is invalid, the update gets a second error, unless the stored certificate is invalid
// too.
func TestCertificateStays(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	der, err := x509.CreateCertificate(nil, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{},
		key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	signed := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	const (
		none = `status.certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block`
		kept = "status.certificate: Forbidden: updates may not modify existing certificate content"
	)
	for name, tc := range map[string]struct {
		was, is []byte
		want    []string
	}{
		"issued certificate":          {nil, signed, nil},
		"new invalid certificate":     {nil, []byte("x"), []string{none}},
		"unchanged":                   {[]byte("x"), []byte("x"), nil},
		"another certificate":         {signed, append(signed, signed...), []string{kept}},
		"invalid certificate":         {signed, []byte("x"), []string{none, kept}},
		"another invalid certificate": {[]byte("x"), []byte("y"), []string{kept}},
	} {
		t.Run(name, func(t *testing.T) {
			request := func(certificate []byte) *certificatesv1.CertificateSigningRequest {
				return &certificatesv1.CertificateSigningRequest{
					Status: certificatesv1.CertificateSigningRequestStatus{Certificate: certificate}}
			}
			errs := validateCertificateSigningRequestState(t.Context(), request(tc.is), request(tc.was))
			if len(errs) != len(tc.want) {
				t.Fatalf("got %v, want %v", errs, tc.want)
			}
			for i, err := range errs {
				if err.Error() != tc.want[i] {
					t.Errorf("got %v, want %v", err, tc.want[i])
				}
			}
		})
	}
}
