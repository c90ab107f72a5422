// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"keelson.dev/api/clock"
	"keelson.dev/keelson/pkg/apiserver/authn/authntest"
	"keelson.dev/keelson/pkg/apiserver/config"
)

func writeFile(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".next", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".next", file); err != nil {
		t.Fatal(err)
	}
}

const authentication = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n"

// issuer returns an entry for i in the list jwt of an AuthenticationConfiguration. The argument
// rest is appended to the entry.
func issuer(i *authntest.Issuer, rest string) string {
	return fmt.Sprintf("- issuer:\n    url: %s\n    audiences: [api]\n    certificateAuthority: |\n      %s\n%s",
		i.URL, strings.ReplaceAll(strings.TrimSpace(i.CA), "\n", "\n      "), rest)
}

const plainMapping = `  claimMappings:
    username: {claim: sub, prefix: "plain:"}
    groups: {claim: groups, prefix: "plain:"}
`

// celMapping accepts only members of the red team, and maps claims to the user by CEL expressions.
const celMapping = `  claimValidationRules:
  - expression: claims.team == 'red'
    message: not of the red team
  claimMappings:
    username: {expression: "'cel:' + claims.sub"}
    groups: {expression: "claims.roles.split(',').map(r, 'cel:' + r)"}
    uid: {expression: claims.uid}
    extra: [{key: example.com/team, valueExpression: claims.team}]
  userValidationRules:
  - expression: "user.username != 'cel:root'"
    message: root stays out
`

func startIssuers(t *testing.T, cfg config.Authentication) *Issuers {
	t.Helper()
	i, err := LoadIssuers(IssuersConfig{
		Authentication: cfg, Own: []string{"https://own.example.com"}, Audiences: authenticator.Audiences{"api-server"},
		Anonymous: true, ServerID: "test", Clock: clock.Real(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return i
}

// until authenticates a token repeatedly until the result is user. The first attempts may fail,
// because keys are fetched in the background.
func until(t *testing.T, i authenticator.Token, token, user string) *authenticator.Response {
	t.Helper()
	ctx := authenticator.WithAudiences(t.Context(), authenticator.Audiences{"api-server"})
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		resp, ok, err := i.AuthenticateToken(ctx, token)
		if ok && resp.User.GetName() == user {
			return resp
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v %t %v, want %q", resp, ok, err, user)
		}
	}
}

func TestIssuers(t *testing.T) {
	plain, cel := authntest.Start(t), authntest.Start(t)
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	writeFile(t, file, authentication+issuer(plain, plainMapping)+issuer(cel, celMapping))
	i := startIssuers(t, config.Authentication{File: file})

	resp := until(t, i, plain.Token(t, map[string]any{"sub": "alice", "groups": []string{"a", "b"}}), "plain:alice")
	if !slices.Equal(resp.User.GetGroups(), []string{"plain:a", "plain:b"}) ||
		!slices.Equal(resp.Audiences, authenticator.Audiences{"api-server"}) {
		t.Errorf("%+v", resp)
	}
	good := map[string]any{"sub": "bob", "team": "red", "roles": "x,y", "uid": "7"}
	resp = until(t, i, cel.Token(t, good), "cel:bob")
	if !slices.Equal(resp.User.GetGroups(), []string{"cel:x", "cel:y"}) || resp.User.GetUID() != "7" ||
		!slices.Equal(resp.User.GetExtra()["example.com/team"], []string{"red"}) {
		t.Errorf("%+v", resp)
	}
	with := func(claim string, value any) map[string]any {
		c := map[string]any{claim: value}
		for k, v := range good {
			if k != claim {
				c[k] = v
			}
		}
		return c
	}
	forged := strings.Split(cel.Token(t, good), ".")
	forged[0] = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	other := authntest.Start(t)
	for reason, token := range map[string]string{
		"claim rule":       cel.Token(t, with("team", "blue")),
		"user rule":        cel.Token(t, with("sub", "root")),
		"expired":          cel.Token(t, with("exp", time.Now().Add(-time.Hour).Unix())),
		"audience":         cel.Token(t, with("aud", "another")),
		"claim is missing": cel.Token(t, with("uid", nil)),
		"unknown issuer":   other.Token(t, good),
		"another's key":    other.Token(t, with("iss", cel.URL)),
		"another's issuer": plain.Token(t, with("iss", cel.URL)),
		"no algorithm":     strings.Join(forged, "."),
		"no signature":     forged[0] + "." + forged[1] + ".",
		"no token":         "x.y.z",
	} {
		if resp, ok, _ := i.AuthenticateToken(t.Context(), token); ok {
			t.Errorf("%s: %+v", reason, resp.User)
		}
	}
}

// TestIssuersReload checks that a changed configuration is applied and that an invalid one is
// ignored.
func TestIssuersReload(t *testing.T) {
	first, second := authntest.Start(t), authntest.Start(t)
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	writeFile(t, file, authentication+issuer(first, plainMapping))
	i := startIssuers(t, config.Authentication{File: file})
	done := make(chan struct{})
	go func() {
		defer close(done)
		i.Run(t.Context())
	}()
	t.Cleanup(func() { <-done })
	a, b := first.Token(t, map[string]any{"sub": "a"}), second.Token(t, map[string]any{"sub": "b"})
	until(t, i, a, "plain:a")
	writeFile(t, file, "nonsense")
	writeFile(t, file, authentication+issuer(first, plainMapping)+issuer(second, plainMapping))
	until(t, i, b, "plain:b")
	until(t, i, a, "plain:a")
	// A reload must not change which paths accept anonymous requests.
	text := authentication + issuer(second, plainMapping)
	if c, err := parseAuthentication(text + "anonymous: {enabled: false}\n"); err != nil || i.validate(c) == nil {
		t.Errorf("anonymous changed: %v", err)
	}
	writeFile(t, file, text)
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, ok, _ := i.AuthenticateToken(t.Context(), a); !ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a former issuer's token is accepted")
		}
	}
}

func TestIssuersOfFlags(t *testing.T) {
	is := authntest.Start(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	writeFile(t, ca, is.CA)
	i := startIssuers(t, config.Authentication{OIDC: config.OIDC{
		IssuerURL: is.URL, ClientID: "api", CAFile: ca, UsernameClaim: "sub", GroupsClaim: "roles", GroupsPrefix: "g:",
		SigningAlgs: []string{"ES256"}, RequiredClaims: map[string]string{"hd": "example.com"},
	}})
	resp := until(t, i, is.Token(t, map[string]any{"sub": "alice", "roles": "one", "hd": "example.com"}), is.URL+"#alice")
	if !slices.Equal(resp.User.GetGroups(), []string{"g:one"}) {
		t.Errorf("%+v", resp.User)
	}
	if _, ok, err := i.AuthenticateToken(t.Context(), is.Token(t, map[string]any{"sub": "alice"})); ok || err == nil {
		t.Error("a required claim is missing: accepted")
	}
}

func TestIssuersRefused(t *testing.T) {
	is := authntest.Start(t)
	for want, text := range map[string]string{
		"URL must not overlap with disallowed issuers": strings.Replace(authentication+issuer(is, plainMapping),
			is.URL, "https://own.example.com", 1),
		`claimMappings.username: Required value`: authentication + issuer(is, ""),
		"undeclared reference": authentication +
			issuer(is, strings.Replace(celMapping, "claims.team == 'red'", "nothing", 1)),
		"empty config data": "",
		"unknown field":     authentication + issuer(is, plainMapping) + "surprise: 1\n",
		"--anonymous-auth flag cannot be set when anonymous field is configured": "apiVersion: " +
			"apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: false}\n",
	} {
		file := filepath.Join(t.TempDir(), "authentication.yaml")
		writeFile(t, file, text)
		_, err := LoadIssuers(IssuersConfig{Authentication: config.Authentication{File: file},
			Own: []string{"https://own.example.com"}, AnonymousSet: true, Log: slog.New(slog.DiscardHandler),
			Clock: clock.Real()})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestTokenWebhook checks that a webhook authenticates tokens and that its answers are cached.
func TestTokenWebhook(t *testing.T) {
	asked := make(chan string, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked <- review.Spec.Token
		if review.Spec.Token == "elsewhere" {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusTemporaryRedirect)
			return
		}
		review.Status.Authenticated = review.Spec.Token == "good"
		review.Status.User = authenticationv1.UserInfo{Username: "hooked", Groups: []string{"g"}}
		review.Status.Audiences = review.Spec.Audiences
		_ = json.NewEncoder(w).Encode(review)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	file := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	writeFile(t, file, fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, "+
		"context: {cluster: c, user: u}}]\nusers: [{name: u}]\nclusters: [{name: c, cluster: {server: %q}}]\n", server.URL))
	hook, err := newTokenWebhook(config.TokenWebhook{ConfigFile: file, Version: "v1", CacheTTL: time.Minute},
		authenticator.Audiences{"api"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := authenticator.WithAudiences(t.Context(), authenticator.Audiences{"api"})
	for range 3 {
		resp, ok, err := hook.AuthenticateToken(ctx, "good")
		if err != nil || !ok || resp.User.GetName() != "hooked" || !slices.Equal(resp.User.GetGroups(), []string{"g"}) {
			t.Fatal(resp, ok, err)
		}
	}
	if len(asked) != 1 {
		t.Errorf("asked %d times", len(asked))
	}
	for _, token := range []string{"bad", "elsewhere"} {
		if resp, ok, _ := hook.AuthenticateToken(ctx, token); ok {
			t.Errorf("%s: %+v", token, resp)
		}
	}
}
