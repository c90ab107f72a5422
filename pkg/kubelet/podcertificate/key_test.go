// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package podcertificate

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"
)

// TestNewKey checks, for every key type, that the key is PKCS#8 and that the request is signed with
// it and contains nothing but the public key.
func TestNewKey(t *testing.T) {
	for keyType, want := range map[string]x509.PublicKeyAlgorithm{
		"RSA3072": x509.RSA, "RSA4096": x509.RSA, "ECDSAP256": x509.ECDSA, "ECDSAP384": x509.ECDSA,
		"ECDSAP521": x509.ECDSA, "ED25519": x509.Ed25519,
	} {
		t.Run(keyType, func(t *testing.T) {
			text, der, err := newKey(keyType)
			if err != nil {
				t.Fatal(err)
			}
			block, rest := pem.Decode(text)
			if block == nil || block.Type != "PRIVATE KEY" || len(rest) != 0 {
				t.Fatalf("not one private key: %v", block)
			}
			private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			r, err := x509.ParseCertificateRequest(der)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.CheckSignature(); err != nil {
				t.Error(err)
			}
			public, ok := private.(crypto.Signer).Public().(interface{ Equal(crypto.PublicKey) bool })
			if !ok || !public.Equal(r.PublicKey) {
				t.Error("the request is for another key")
			}
			if r.PublicKeyAlgorithm != want {
				t.Errorf("algorithm %v, want %v", r.PublicKeyAlgorithm, want)
			}
			if name := (pkix.Name{}); r.Subject.String() != name.String() || len(r.Extensions) != 0 {
				t.Errorf("the request has a subject or extensions: %v %v", r.Subject, r.Extensions)
			}
			if bits := map[string]int{"RSA3072": 3072, "RSA4096": 4096}[keyType]; bits != 0 {
				if got := r.PublicKey.(interface{ Size() int }).Size() * 8; got != bits {
					t.Errorf("%d bits, want %d", got, bits)
				}
			}
		})
	}
}

func TestNewKeyOfUnknownType(t *testing.T) {
	if _, _, err := newKey("RSA1024"); err == nil || err.Error() != `generate private key: unknown key type "RSA1024"` {
		t.Error(err)
	}
}

func TestCleanChain(t *testing.T) {
	block := func(kind, data string, headers map[string]string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Headers: headers, Bytes: []byte(data)}))
	}
	leaf, ca := block("CERTIFICATE", "leaf", nil), block("CERTIFICATE", "ca", nil)
	for name, c := range map[string]struct{ in, want string }{
		"clean":        {leaf + ca, leaf + ca},
		"empty":        {"", ""},
		"text between": {"subject: x\n" + leaf + "issuer\n\n" + ca + "end", leaf + ca},
		"headers":      {block("CERTIFICATE", "leaf", map[string]string{"a": "b"}) + ca, leaf + ca},
		"other block":  {leaf + block("PRIVATE KEY", "k", nil) + ca, leaf + ca},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(cleanChain(c.in)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
