// Copyright The Keelson Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"keelson.dev/api/clock"
)

// lister returns a lister of secrets in kube-system.
func lister(t testing.TB, secrets ...*corev1.Secret) corelisters.SecretLister {
	t.Helper()
	i := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, s := range secrets {
		s.Namespace = metav1.NamespaceSystem
		if err := i.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	return corelisters.NewSecretLister(i)
}

func TestGroupsOfBootstrapTokens(t *testing.T) {
	for extra, want := range map[string]string{
		"": "[system:bootstrappers]",
		"system:bootstrappers:b,system:bootstrappers:a,system:bootstrappers:b": "[system:bootstrappers " +
			"system:bootstrappers:a system:bootstrappers:b]",
	} {
		b := &bootstrapTokens{
			lister(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"},
				Type: corev1.SecretTypeBootstrapToken, Data: map[string][]byte{
					"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"),
					"usage-bootstrap-authentication": []byte("true"), "auth-extra-groups": []byte(extra),
				}}), clock.Real()}
		resp, ok, err := b.AuthenticateToken(t.Context(), "abcdef.0123456789abcdef")
		if !ok || err != nil {
			t.Fatalf("%q: %t, %v", extra, ok, err)
		}
		if got := fmt.Sprint(resp.User.GetGroups()); got != want {
			t.Errorf("%q: %s", extra, got)
		}
	}
}

// TestShapeOfBootstrapTokens checks that malformed tokens are rejected without a lookup. It also
// checks which groups a token may grant.
func TestShapeOfBootstrapTokens(t *testing.T) {
	const id, secret = "abcdef", "0123456789abcdef"
	b := &bootstrapTokens{clock: clock.Real()} // has no lister, so a lookup would panic
	for _, token := range []string{
		"", ".", id, id + ".", id + "." + secret + "0", id + "." + secret[1:], id[1:] + "." + secret,
		"ABCDEF." + secret, "abcde/." + secret,
		id + "." + strings.ToUpper(secret), id + ".0123456789abcde\n", id + "-" + secret, "é" + id[2:] + "." +
			secret, strings.Repeat("a.", 1<<19),
	} {
		if _, ok, err := b.AuthenticateToken(t.Context(), token); ok || err != nil {
			t.Errorf("%.40q: %t, %v", token, ok, err)
		}
	}
	for group, want := range map[string]bool{
		"system:bootstrappers:a": true, "system:bootstrappers:a:b-c:9": true, "system:bootstrappers:" +
			strings.Repeat("a", 256): true,
		"system:bootstrappers:-a": true, "system:bootstrappers:": false, "system:bootstrappers": false,
		"system:masters":          false,
		"system:bootstrappers:a-": false, "system:bootstrappers:A": false, "system:bootstrappers:a\n": false,
		"system:bootstrappers:" + strings.Repeat("a", 257): false,
	} {
		if got := bootstrapperGroup(group); got != want {
			t.Errorf("%.40q: %t", group, got)
		}
	}
}

// TestCostOfWrongTokens checks that rejecting a malformed token allocates no memory.
func TestCostOfWrongTokens(t *testing.T) {
	b := &bootstrapTokens{lister(t), clock.Real()}
	for _, token := range []string{"not a token", "abcdef.0123456789abcdeF", strings.Repeat("a.", 1<<19)} {
		if n := testing.AllocsPerRun(100, func() { _, _, _ = b.AuthenticateToken(t.Context(), token) }); n > 0 {
			t.Errorf("%.20q: %v allocations", token, n)
		}
	}
}
