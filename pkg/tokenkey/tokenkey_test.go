// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenkey_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"keelson.dev/keelson/pkg/tokenkey"
)

func TestAlgorithm(t *testing.T) {
	for curve, want := range map[elliptic.Curve]jose.SignatureAlgorithm{
		elliptic.P224(): "", elliptic.P256(): jose.ES256, elliptic.P384(): jose.ES384, elliptic.P521(): jose.ES512,
	} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tokenkey.Algorithm(key.Public()); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", curve.Params().Name, got, err)
		}
		a, err := tokenkey.ID(key.Public())
		if b, again := tokenkey.ID(key.Public()); err != nil || again != nil || a != b || len(a) != 43 {
			t.Errorf("names %q and %q, %v", a, b, err)
		}
	}
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tokenkey.Algorithm(public); err == nil {
		t.Errorf("ed25519 signs by %q", got)
	}
}
