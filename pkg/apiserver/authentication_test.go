// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson.dev/keelson/pkg/apiserver/authn/authntest"
	"keelson.dev/keelson/pkg/apiserver/config"
	"keelson.dev/keelson/pkg/apiserver/testserver"
)

// TestAuthenticationConfiguration checks that users of a configured issuer are accepted, and that
// anonymous requests are accepted only for the configured path.
func TestAuthenticationConfiguration(t *testing.T) {
	issuer := authntest.Start(t)
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	text := `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous: {enabled: true, conditions: [{path: /livez}]}
jwt:
- issuer:
    url: ` + issuer.URL + `
    audiences: [api]
    certificateAuthority: |
      ` + strings.ReplaceAll(strings.TrimSpace(issuer.CA), "\n", "\n      ") + `
  claimMappings:
    username: {expression: "'oidc:' + claims.sub"}
    groups: {claim: groups, prefix: ""}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := testserver.Start(t, testserver.Options{Configure: func(c *config.Config) { c.Authentication.File = file }})
	alice := kubernetes.NewForConfigOrDie(
		s.TokenConfig(issuer.Token(t, map[string]any{"sub": "alice", "groups": []string{"team"}})))
	var who *authenticationv1.SelfSubjectReview
	poll(t, "alice is known", func(ctx context.Context) bool {
		var err error
		who, err = alice.AuthenticationV1().SelfSubjectReviews().Create(ctx,
			&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return err == nil
	})
	if u := who.Status.UserInfo; u.Username != "oidc:alice" || len(u.Groups) != 2 || u.Groups[0] != "team" ||
		u.Groups[1] != "system:authenticated" {
		t.Errorf("%+v", u)
	}
	review, err := s.Client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: issuer.Token(t, map[string]any{"sub": "alice"})},
	}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated || review.Status.User.Username != "oidc:alice" {
		t.Errorf("%+v, %v", review, err)
	}
	nobody := rest.AnonymousClientConfig(s.Config)
	for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusUnauthorized,
		"/version": http.StatusUnauthorized, "/api": http.StatusUnauthorized} {
		if resp, _ := answerTo(t, nobody, path); resp.StatusCode != want {
			t.Errorf("%s: nobody was answered with %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// TestAnonymousWithAlwaysAllow checks that anonymous requests are rejected in mode AlwaysAllow.
func TestAnonymousWithAlwaysAllow(t *testing.T) {
	s := testserver.Start(t,
		testserver.Options{Configure: func(c *config.Config) { c.AuthorizationModes = []string{config.ModeAlwaysAllow} }})
	if resp, _ := answerTo(t, rest.AnonymousClientConfig(s.Config),
		"/api/v1/secrets"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("nobody was answered with %d", resp.StatusCode)
	}
	if resp, _ := answerTo(t, s.UserConfig(t, "eve"), "/api/v1/secrets"); resp.StatusCode != http.StatusOK {
		t.Errorf("eve was answered with %d", resp.StatusCode)
	}
}
