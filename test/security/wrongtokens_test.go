// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson.dev/keelson/pkg/apiserver/config"
)

// TestWrongBootstrapTokens checks that the API server rejects invalid bootstrap tokens without
// reading from its store.
func TestWrongBootstrapTokens(t *testing.T) {
	change, events := recorded(t)
	lab := newLab(t, func(c *config.Config) {
		change(c)
		c.BootstrapTokenAuth = true
	})
	_, err := lab.Client.CoreV1().Secrets("kube-system").Create(t.Context(), &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"}, Type: v1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": "abcdef", "token-secret": "0123456789abcdef",
			"usage-bootstrap-authentication": "true"},
	}, metav1.CreateOptions{})
	check(t, err)
	code := func(token string) int {
		t.Helper()
		code, _, _ := get(t, lab.TokenConfig(token), "/api/v1/nodes")
		return code
	}
	eventually(t, "the valid token", func(context.Context) bool {
		return code("abcdef.0123456789abcdef") == http.StatusForbidden
	})
	before := len(events())
	for i := range 20 {
		if got := code(fmt.Sprintf("%06d.0123456789abcdef", i)); got != http.StatusUnauthorized {
			t.Errorf("a token with an unknown ID: %d", got)
		}
		if got := code(fmt.Sprintf("abcdef.%016d", i)); got != http.StatusUnauthorized {
			t.Errorf("a token with a wrong secret: %d", got)
		}
	}
	reads := 0
	for _, e := range events()[before:] {
		if e.ObjectRef != nil && e.ObjectRef.Resource == "secrets" &&
			strings.HasPrefix(e.ObjectRef.Name, "bootstrap-token-") {
			reads++
		}
	}
	if reads > 0 {
		t.Errorf("%d reads for 40 wrong tokens", reads)
	}
}
