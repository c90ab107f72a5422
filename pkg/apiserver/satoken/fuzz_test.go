// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package satoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"keelson.dev/api/clock"
)

// FuzzVerifier checks that a random token is accepted only if it has a valid signature.
func FuzzVerifier(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	files := &KeyFiles{}
	keys := &Keys{byID: map[string][]crypto.PublicKey{}}
	if err := keys.add(key.Public()); err != nil {
		f.Fatal(err)
	}
	files.current.Store(keys)
	js, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		f.Fatal(err)
	}
	clk := clock.Real()
	v := &Verifier{Keys: files, Issuers: []string{issuerURL}, Audiences: []string{"api"}, Get: accounts{},
		Metrics: NewMetrics(nil), Clock: clk}
	const claims = `{"iss":"https://issuer.example.com","aud":["api"],"sub":"system:serviceaccount:n:a",` +
		`"exp":99999999999,"kubernetes.io":{"namespace":"n","serviceaccount":{"name":"a","uid":"1"}}}`
	sign := func(payload []byte) string {
		signed, err := js.Sign(payload)
		if err != nil {
			f.Fatal(err)
		}
		token, err := signed.CompactSerialize()
		if err != nil {
			f.Fatal(err)
		}
		return token
	}
	good := sign([]byte(claims))
	if _, ok, err := v.AuthenticateToken(f.Context(), good); !ok || err != nil {
		f.Fatal(ok, err)
	}
	parts := strings.Split(good, ".")
	f.Add(good, []byte(claims))
	f.Add(parts[0]+"."+parts[1]+".", []byte(`{}`))
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))+"."+parts[1]+".",
		[]byte(`{"iss":"kubernetes/serviceaccount"}`))
	f.Add("a.b.c", []byte(`{"iss":"https://issuer.example.com","exp":-1e300}`))
	f.Fuzz(func(t *testing.T, token string, payload []byte) {
		signature := strings.TrimPrefix(token, parts[0]+"."+parts[1]+".")
		if _, ok, _ := v.AuthenticateToken(t.Context(), token); ok && signature == token {
			t.Errorf("a token that nobody signed lets in: %q", token)
		}
		// A token with signed claims, if accepted, authenticates the service account in the claims.
		resp, ok, err := v.AuthenticateToken(t.Context(), sign(payload))
		if ok && (err != nil || !strings.HasPrefix(resp.User.GetName(), "system:serviceaccount:")) {
			t.Errorf("%s: %v %v", payload, resp, err)
		}
	})
}
