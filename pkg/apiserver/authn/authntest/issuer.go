// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authntest has helpers for tests of authentication: an issuer of tokens with any claims,
// which serves its discovery document and keys over TLS on loopback; a webhook with configurable
// answers; and a search in JSON answers.
package authntest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"keelson.dev/api/clock"
)

// Issuer signs tokens.
type Issuer struct {
	// URL is the URL of the issuer, and CA its CA in PEM.
	URL, CA string

	key *ecdsa.PrivateKey
}

const keyID = "test"

// Start serves until the test ends.
func Start(tb testing.TB) *Issuer {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	i := &Issuer{key: key}
	mux := http.NewServeMux()
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	tb.Cleanup(server.Close)
	i.URL = server.URL
	i.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	answer := func(path string, doc any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(doc) // a write error appears as an error of the client
		})
	}
	answer("/.well-known/openid-configuration", map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	answer("/keys", jose.JSONWebKeySet{
		Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: keyID, Algorithm: string(jose.ES256), Use: "sig"}}})
	return i
}

// Token returns a signed token with claims. By default its issuer is this one, its audience is
// "api", and it is valid for an hour. Claims whose value is nil are omitted.
func (i *Issuer) Token(tb testing.TB, claims map[string]any) string {
	tb.Helper()
	all := map[string]any{"iss": i.URL, "aud": "api", "exp": clock.Real().Now().Add(time.Hour).Unix(),
		"iat": clock.Real().Now().Unix()}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256,
		Key: jose.JSONWebKey{Key: i.key, KeyID: keyID}}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(all).Serialize()
	if err != nil {
		tb.Fatal(err)
	}
	return token
}
