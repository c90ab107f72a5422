// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/authn/authntest"
	"keelson.dev/keelson/pkg/apiserver/config"
)

// FuzzBootstrapTokens checks that a random token is accepted only if it equals the stored one.
func FuzzBootstrapTokens(f *testing.F) {
	for _, token := range []string{"abcdef.0123456789abcdef", "abcdef.", ".0123456789abcdef",
		"abcdef.0123456789abcdef\n", "../abc.0123456789abcdef", "ABCDEF.0123456789abcdef"} {
		f.Add(token)
	}
	b := &bootstrapTokens{lister(f, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"}, Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"),
			"usage-bootstrap-authentication": []byte("true"),
		}}), clock.Real()}
	f.Fuzz(func(t *testing.T, token string) {
		resp, ok, err := b.AuthenticateToken(t.Context(), token)
		if want := token == "abcdef.0123456789abcdef"; ok != want || err != nil {
			t.Errorf("%q: %v %t %v", token, resp, ok, err)
		}
	})
}

// FuzzIssuers checks that a random token is accepted only if an issuer has signed it.
func FuzzIssuers(f *testing.F) {
	i, err := LoadIssuers(IssuersConfig{
		Authentication: config.Authentication{OIDC: config.OIDC{IssuerURL: "https://127.0.0.1:1",
			ClientID: "api", UsernameClaim: "sub", SigningAlgs: []string{"ES256"}}},
		ServerID: "test", Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		f.Fatal(err)
	}
	if err := i.Start(f.Context()); err != nil {
		f.Fatal(err)
	}
	other := authntest.Start(f)
	good := other.Token(f, map[string]any{"iss": "https://127.0.0.1:1", "sub": "alice"})
	f.Add(good)
	f.Add(good[:strings.LastIndex(good, ".")+1])
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovLzEyNy4wLjAuMToxIn0.")
	f.Fuzz(func(t *testing.T, token string) {
		if resp, ok, _ := i.AuthenticateToken(t.Context(), token); ok {
			t.Errorf("%q lets in %v", token, resp.User)
		}
	})
}

// FuzzAuthentication checks that the parser does not panic on any configuration.
func FuzzAuthentication(f *testing.F) {
	f.Add(authentication + "- issuer: {url: 'https://a', audiences: [b]}\n")
	f.Add("anonymous: {enabled: true}")
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = parseAuthentication(text)
	})
}
