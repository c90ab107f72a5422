// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"keelson.dev/api/clock"
)

// theSecret is the answer to whatever is asked for.
type theSecret struct{ secret *corev1.Secret }

func (s theSecret) Secret(context.Context, string, string) (*corev1.Secret, error) {
	return s.secret, nil
}

func TestGroupsOfBootstrapTokens(t *testing.T) {
	for extra, want := range map[string]string{
		"": "[system:bootstrappers]",
		"system:bootstrappers:b,system:bootstrappers:a,system:bootstrappers:b": "[system:bootstrappers system:bootstrappers:a system:bootstrappers:b]",
	} {
		b := &bootstrapTokens{theSecret{&corev1.Secret{Type: corev1.SecretTypeBootstrapToken, Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"), "auth-extra-groups": []byte(extra),
		}}}, clock.Real()}
		resp, ok, err := b.AuthenticateToken(t.Context(), "abcdef.0123456789abcdef")
		if !ok || err != nil {
			t.Fatalf("%q: %t, %v", extra, ok, err)
		}
		if got := fmt.Sprint(resp.User.GetGroups()); got != want {
			t.Errorf("%q: %s", extra, got)
		}
	}
}
